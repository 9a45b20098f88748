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
from cutover.wire import Dialect, DialectRefused, find_dialect, read_dialect
from cutover.wire.dialect import find
from loadtests.meter import Asked

HERE: Final = Path(__file__).parent
ID, MESSAGE = "{id}", "{message}"
"""What stands in a request for an id that was never used, and for a message."""
_JSON: Final = {"content-type": "application/json", "accept": "text/event-stream"}
STACKS: Final = ("legacy", "graph")

_BODIES: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
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
    """A flow as its clients know it: a request with `{id}` and `{message}` in it, and a dialect."""

    name: str
    method: str
    target: str
    headers: Mapping[str, str]
    body: str
    dialect: Dialect
    messages: Sequence[Any]
    """Each a text, or a whole body."""

    def request(self, host: str, number: int, headers: Mapping[str, str]) -> Asked:
        """Return the request with message `number`, modulo how many there are."""
        message, fresh = self.messages[number % len(self.messages)], str(uuid.uuid4())
        if isinstance(message, str):
            text = self.body.replace(MESSAGE, json.dumps(message)[1:-1])
        else:
            text = json.dumps(message)
        return Asked(
            method=self.method,
            url=host.rstrip("/") + self.target.replace(ID, fresh),
            headers={**{k: v.replace(ID, fresh) for k, v in self.headers.items()}, **headers},
            body=text.replace(ID, fresh).encode(),
        )


def load_flows(
    config: Path | None = None, name: str = "", messages: Path | None = None
) -> Mapping[str, LoadFlow]:
    """Return the flows that a `cutover.toml` names, without one the built-in ones; or `name` alone.

    `messages` is a file of JSON lines. Raises `PlanRefused` and `DialectRefused`.
    """
    try:
        tables = tomllib.loads(config.read_text("utf-8")).get("flows") if config else None
    except (OSError, ValueError) as error:
        message = f"{config}: {error}"
        raise PlanRefused(message) from error
    tables = tables or {one: {} for one in _BODIES}
    if name and name not in tables:
        message = f"no flow {name!r}: there are {', '.join(tables)}"
        raise PlanRefused(message)
    return {
        one: _declared(one, table, messages) if table.get("paths") else _built_in(one, messages)
        for one, table in tables.items()
        if name in {"", one}
    }


def _built_in(name: str, messages: Path | None) -> LoadFlow:
    if name not in _BODIES:
        message = f"flow {name!r} is not built in, and has no paths"
        raise PlanRefused(message)
    path, body = _BODIES[name]
    own = HERE / "messages" / f"{name}.jsonl"
    found = _lines(messages or (own if own.exists() else own.with_name("any.jsonl")))
    dialect = _dialect(str(HERE / "flows" / f"{name}.toml"))
    return LoadFlow(name, "POST", path, _JSON, json.dumps(body), dialect, found)


def _declared(name: str, table: Mapping[str, Any], messages: Path | None) -> LoadFlow:
    """Return a flow of services: its example, each time in another conversation."""
    if not (example := str(table.get("example", ""))) and messages is None:
        message = f"flows.{name}: needs an example, as init writes it, or --messages"
        raise PlanRefused(message)
    head, _, body = (example or f"POST {table['paths'][0]}").partition("\n\n")
    first, *lines = head.strip().splitlines()
    method, _, target = first.partition(" ")
    parted = (line.partition(":") for line in lines)
    headers = {key.strip().lower(): value.strip() for key, _, value in parted}
    kind, _, place = table.get("keys", {}).get(table.get("sticky", ""), "").partition(".")
    if kind == "body":
        body = _with_id(body, place)
    elif kind == "header":
        headers[place.lower()] = ID
    elif kind == "path":
        steps = zip(table["paths"][0].split("/"), target.split("/"), strict=False)
        target = "/".join(ID if step == f"{{{place}}}" else given for step, given in steps)
    found = _lines(messages) if messages else ("",)
    if MESSAGE not in body and any(isinstance(one, str) and one for one in found):
        message = f"{messages}: flow {name!r} needs whole bodies, a JSON object in each line"
        raise PlanRefused(message)
    dialect = _dialect(str(table.get("dialect", "chat-completions")))
    return LoadFlow(
        name, method, target, headers if example else _JSON, body.strip(), dialect, found
    )


def _dialect(named: str) -> Dialect:
    if not Path(named).suffix:
        return find_dialect(named)
    try:
        return read_dialect(Path(named).read_text("utf-8"), named)
    except (OSError, UnicodeDecodeError) as error:
        raise DialectRefused(named, "", f"not readable: {error}") from error


def _with_id(body: str, place: str) -> str:
    """Return a JSON body with a fresh id at a place; any other stays as it is."""
    try:
        decoded = json.loads(body)
    except ValueError:
        return body
    for holder, step, _ in find(decoded, place):
        holder[step] = ID
    return json.dumps(decoded)


def _lines(path: Path) -> tuple[Any, ...]:
    try:
        texts = path.read_bytes().splitlines()
        found = tuple(msgspec.json.decode(one, type=str | dict[str, Any]) for one in texts if one)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"{path}: {error}; it holds a text or a body in each line, as JSON"
        raise PlanRefused(message) from error
    if not found:
        message = f"{path}: holds no message"
        raise PlanRefused(message)
    return found


class PlannedRun(msgspec.Struct, frozen=True):
    """A run of one stack; the runs of a pair share the `seed`, by which their requests are due."""

    number: int
    pair: int
    stack: str
    seed: int


def interleaved(pairs: int, seed: int) -> tuple[PlannedRun, ...]:
    """Draw the order of runs: each second pair mirrors the one before it (A B B A)."""
    chance = random.Random(seed)
    runs: list[PlannedRun] = []
    order: list[str] = []
    for pair in range(pairs):
        order = order[::-1] if pair % 2 else chance.sample(STACKS, len(STACKS))
        due = chance.getrandbits(32)
        runs += [PlannedRun(len(runs) + place, pair, one, due) for place, one in enumerate(order)]
    return tuple(runs)
