"""What is sent under load, and in which order: flows, messages under fresh ids, pairs of runs."""

from __future__ import annotations

import json
import random
import tomllib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from cutover.errors import CutoverError
from cutover.wire import Dialect, DialectRefused, find_dialect, read_dialect
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
    messages: Sequence[Any] = field(default=("",))
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

    def with_messages(self, path: Path) -> LoadFlow:
        """Return the flow with the messages in a file of JSON lines; raises `PlanRefused`."""
        found = _lines(path)
        if MESSAGE not in self.body and any(isinstance(one, str) for one in found):
            message = f"{path}: flow {self.name!r} needs whole bodies, a JSON object in each line"
            raise PlanRefused(message)
        return LoadFlow(
            self.name, self.method, self.target, self.headers, self.body, self.dialect, found
        )


def load_flows(config: Path | None = None) -> Mapping[str, LoadFlow]:
    """Return the flows that a `cutover.toml` names, without one the built-in ones.

    Raises `PlanRefused` and `DialectRefused`.
    """
    if config is None:
        return {name: _built_in(name) for name in _BODIES}
    try:
        tables = tomllib.loads(config.read_text("utf-8")).get("flows")
    except (OSError, ValueError) as error:
        message = f"{config}: {error}"
        raise PlanRefused(message) from error
    if not isinstance(tables, dict):
        return load_flows()
    return {
        name: _declared(name, table) if table.get("paths") else _built_in(name)
        for name, table in tables.items()
    }


@cache
def _built_in(name: str) -> LoadFlow:
    if name not in _BODIES:
        message = f"flow {name!r} is not built in, and has no paths"
        raise PlanRefused(message)
    path, body = _BODIES[name]
    text = (HERE / "flows" / f"{name}.toml").read_text("utf-8")
    own = HERE / "messages" / f"{name}.jsonl"
    messages = _lines(own if own.exists() else own.with_name("any.jsonl"))
    dialect = read_dialect(text, f"{name}.toml", name)
    return LoadFlow(name, "POST", path, _JSON, json.dumps(body), dialect, messages)


def _declared(name: str, table: Mapping[str, Any]) -> LoadFlow:
    """Return a flow of services: its example, each time in another conversation."""
    example = str(table.get("example") or f"POST {table['paths'][0]}")
    head, _, body = example.partition("\n\n")
    first, *lines = head.strip().splitlines()
    method, _, target = first.partition(" ")
    parted = (line.partition(":") for line in lines)
    headers = {key.strip().lower(): value.strip() for key, _, value in parted}
    body = body.removesuffix("\n")
    kind, _, place = table.get("keys", {}).get(table.get("sticky", ""), "").partition(".")
    match kind:
        case "body":
            body = _with_id(body, place.split("."))
        case "header":
            headers[place.lower()] = ID
        case "path":
            path, _, query = target.partition("?")
            steps = [
                ID if step == f"{{{place}}}" else given
                for step, given in zip(table["paths"][0].split("/"), path.split("/"), strict=False)
            ]
            target = "/".join(steps) + (f"?{query}" if query else "")
        case _:
            pass
    if not table.get("example") and method == "POST":
        headers = dict(_JSON)
    named = str(table.get("dialect", "chat-completions"))
    return LoadFlow(name, method, target, headers, body, _dialect(named))


def _dialect(named: str) -> Dialect:
    if not Path(named).suffix:
        return find_dialect(named)
    try:
        return read_dialect(Path(named).read_text("utf-8"), named)
    except (OSError, UnicodeDecodeError) as error:
        raise DialectRefused(named, "", f"not readable: {error}") from error


def _with_id(body: str, steps: Sequence[str]) -> str:
    """Return a JSON body with a fresh id at a place; one that has none there stays as it is."""
    try:
        decoded = holder = json.loads(body)
    except ValueError:
        return body
    for step in steps[:-1]:
        holder = holder.get(step) if isinstance(holder, dict) else None
    if isinstance(holder, dict) and isinstance(holder.get(steps[-1]), str):
        holder[steps[-1]] = ID
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
