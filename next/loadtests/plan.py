"""What is sent under load, and in which order: flows, messages under fresh ids, pairs of runs."""

from __future__ import annotations

import json
import random
import tomllib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from cutover.errors import CutoverError
from cutover.wire import Dialect, find_dialect, read_dialect
from cutover.wire.dialect import find
from loadtests.meter import Asked

HERE: Final = Path(__file__).parent
STACKS: Final = ("legacy", "graph")
ID, MESSAGE = "{id}", "{message}"
"""What stands in a request for an id that was never used, and for a message."""
_JSON: Final = {"content-type": "application/json", "accept": "text/event-stream"}
_BUILT_IN: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "chat": ("/chat/sse", {"message_id": ID, "content": MESSAGE, "user_id": ID}),
    "companion": ("/chat", {"session_id": ID, "message": MESSAGE}),
    "session": ("/api/v1/chat", {"message": MESSAGE, "user_id": ID}),
    "pipeline": ("/api/chat", {"session_id": ID, "user_id": ID, "message": MESSAGE}),
    "ops": ("/ops/react", {"session_id": ID, "input": MESSAGE}),
}
"""Path and body of each built-in flow."""


class PlanRefused(CutoverError):
    """A load test cannot be meant; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class LoadFlow:
    """A flow as clients know it: a request with `{id}` and `{message}` in it, and a dialect.

    A message is a text, or a whole body.
    """

    name: str
    method: str
    target: str
    headers: Mapping[str, str]
    body: str
    dialect: Dialect
    messages: Sequence[Any]

    def request(self, host: str, number: int, headers: Mapping[str, str]) -> Asked:
        """Return the request with message `number`, modulo how many there are."""
        message, fresh = self.messages[number % len(self.messages)], str(uuid.uuid4())
        text = json.dumps(message)
        body = self.body.replace(MESSAGE, text[1:-1]) if isinstance(message, str) else text
        return Asked(
            method=self.method,
            url=host.rstrip("/") + self.target.replace(ID, fresh),
            headers={**{k: v.replace(ID, fresh) for k, v in self.headers.items()}, **headers},
            body=body.replace(ID, fresh).encode(),
        )


def load_flows(
    config: Path | None = None, name: str = "", messages: Path | None = None
) -> Mapping[str, LoadFlow]:
    """Return the flows that a `cutover.toml` names, without one the built-in ones; or `name` alone.

    `messages` is a file of JSON lines. Raises `PlanRefused` and `DialectRefused`.
    """
    try:
        tables = tomllib.loads(config.read_text("utf-8")).get("flows") if config else None
        tables = tables or {one: {} for one in _BUILT_IN}
        if name and name not in tables:
            message = f"no flow {name!r}: there are {', '.join(tables)}"
            raise PlanRefused(message)
        asked = {one: table for one, table in tables.items() if name in {"", one}}
        return {one: _flow(one, table, messages) for one, table in asked.items()}
    except (OSError, ValueError) as error:
        message = f"{config or messages}: {error}"
        raise PlanRefused(message) from error


def _flow(name: str, table: Mapping[str, Any], messages: Path | None) -> LoadFlow:
    """Return a built-in flow, or a declared one: its example, each time in a new conversation."""
    if not table.get("paths"):
        if name not in _BUILT_IN:
            message = f"flow {name!r} is not built in, and has no paths"
            raise PlanRefused(message)
        path, fields = _BUILT_IN[name]
        own = HERE / "messages" / f"{name}.jsonl"
        found = _lines(messages or (own if own.exists() else own.with_name("any.jsonl")))
        dialect = read_dialect((HERE / "flows" / f"{name}.toml").read_text("utf-8"), name)
        return LoadFlow(name, "POST", path, _JSON, json.dumps(fields), dialect, found)
    example = str(table.get("example") or f"POST {table['paths'][0]}")
    head, _, body = example.partition("\n\n")
    first, *lines = head.strip().splitlines()
    method, _, target = first.partition(" ")
    parted = (line.partition(":") for line in lines)
    headers = {key.strip().lower(): value.strip() for key, _, value in parted} or _JSON
    kind, _, place = table.get("keys", {}).get(table.get("sticky", ""), "").partition(".")
    if kind == "header":
        headers = {**headers, place.lower(): ID}
    elif kind == "path":
        steps = zip(table["paths"][0].split("/"), target.split("/"), strict=False)
        target = "/".join(ID if step == f"{{{place}}}" else given for step, given in steps)
    elif kind == "body" and body.startswith("{"):
        decoded = json.loads(body)
        for holder, step, _ in find(decoded, place):
            holder[step] = ID
        body = json.dumps(decoded)
    found = _lines(messages) if messages else ("",)
    texts = any(isinstance(one, str) for one in found)
    if texts and MESSAGE not in body and (messages or not table.get("example")):
        message = f"flow {name!r} needs an example, or --messages with a body in each line"
        raise PlanRefused(message)
    named = Path(str(table.get("dialect", "chat-completions")))
    own_dialect = named.read_text("utf-8") if named.suffix else ""
    dialect = read_dialect(own_dialect, str(named)) if own_dialect else find_dialect(str(named))
    return LoadFlow(name, method, target, headers, body.strip(), dialect, found)


def _lines(path: Path) -> tuple[Any, ...]:
    decoder = msgspec.json.Decoder(str | dict[str, Any])
    if found := tuple(decoder.decode_lines(path.read_bytes())):
        return found
    message = f"{path}: holds no message"
    raise PlanRefused(message)


class PlannedRun(msgspec.Struct, frozen=True):
    """A run of one stack; the runs of a pair share the `seed`, by which their requests are due."""

    number: int
    pair: int
    stack: str
    seed: int


def interleaved(pairs: int, seed: int) -> tuple[PlannedRun, ...]:
    """Return pairs of runs, each the mirror of the one before (A B B A); the first is drawn."""
    chance = random.Random(seed)
    order, runs = chance.sample(STACKS, len(STACKS)), []
    for pair in range(pairs):
        due = chance.getrandbits(32)
        runs += [PlannedRun(2 * pair + place, pair, one, due) for place, one in enumerate(order)]
        order.reverse()
    return tuple(runs)
