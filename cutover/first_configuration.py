"""The first configuration of two services, written from what was recognised in their answers."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from contract.flow import SESSION, USER
from contract.wire import Dialect
from cutover.recognition import Recognised
from router.config.schema import SHADOW_SAFE
from router.stack import StackName

MOST_EXAMPLE_BYTES = 4_096
"""A longer request is not written into the file."""

_WIDTH = 100
_DEPTH = 4
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_FIELD = re.compile(r"[^.\s]+")
_NO_NAMES: Final = frozenset({"api", "v1", "v2", "v3", "sse", "stream", "streaming", "completions"})
"""Segments of paths that name no flow."""
_DEFAULT_NAME = "assistant"

_CONVERSATIONS = ("session", "conversation", "chat", "thread", "dialog", "dialogue", "ticket")
_USERS = ("user", "customer", "account", "member")
_MESSAGES = ("message", "request", "msg", "turn")
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    SESSION: (*(f"{one}_id" for one in _CONVERSATIONS), *_CONVERSATIONS),
    USER: (*(f"{one}_id" for one in _USERS), "uid", "user"),
    "message_id": tuple(f"{one}_id" for one in _MESSAGES),
}
"""What bodies call the ids that requests are routed by, in snake case; the first wins."""


@dataclass(frozen=True, slots=True)
class FirstConfiguration:
    """What a first `cutover.toml` says: the flow, the two services, and what was found.

    `found` are the dialects by stack, which are the `same` where that of the old service reads
    both. `example` is "" where the request is not to be written into the file.
    """

    name: str
    path: str
    urls: Mapping[StackName, str]
    found: Mapping[StackName, Recognised]
    route_keys: Mapping[str, str]
    example: str
    shadow_safe: bool
    same: bool = True

    def text(self) -> str:
        """Return the file."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield "# Written by `cutover init` from one answer of each service; see docs/remote.md."
        for stack in self.urls:
            yield from ("", *self._stack(stack))
        yield from ("", *self._flow())

    def _stack(self, stack: StackName) -> Iterator[str]:
        yield f"[stacks.{stack}]"
        yield f"url = {toml(self.urls[stack])}"
        yield f"flows = {toml([self.name])}  # it has no other"
        if told := self.found[stack].media_type:
            yield f"media_types = {toml([told])}  # as its streams are called"
        if stack == "graph":
            yield from _comment(f"declared: {SHADOW_SAFE}", "# ")
            mark = "" if self.shadow_safe else "# "
            yield f"{mark}shadow_safe = true"

    def _flow(self) -> Iterator[str]:
        formats = {"dialect": self.found["legacy"]}
        if not self.same:
            formats["graph_dialect"] = self.found["graph"]
        yield f"[flows.{self.name}]"
        yield f"path = {toml(self.path)}"
        for key, found in formats.items():
            if found.name:
                about = "  # mirrored and compared; clients get dialect" if key != "dialect" else ""
                yield f"{key} = {toml(found.name)}{about}"
        if self.route_keys:
            yield f"route_keys = {toml(self.route_keys)}"
        if SESSION in self.route_keys:
            yield 'history = "own"  # "shared" if both read conversations from one store'
        if self.example:
            yield f"example = {toml(self.example)}  # for doctor --probe"
        yield f"enable_langgraph = {toml(self.shadow_safe)}"
        yield "langgraph_percent = 0.0  # everything to legacy"
        mark = "" if self.shadow_safe else "# "
        yield f"{mark}shadow_percent = 100.0  # all of it mirrored to graph"
        for key, found in formats.items():
            if not found.name:
                yield ""
                for doubt in found.doubts:
                    yield from _comment(doubt, "# ? ")
                yield from _tables(f"flows.{self.name}.{key}", dialect_table(found.dialect))


def _comment(text: str, mark: str) -> list[str]:
    indent = f"#{' ' * (len(mark) - 1)}"
    return textwrap.wrap(text, _WIDTH, initial_indent=mark, subsequent_indent=indent)


def dialect_table(dialect: Dialect) -> dict[str, Any]:
    """Return a dialect as a file has it: without its name, and without defaults."""
    table: dict[str, Any] = msgspec.to_builtins(dialect)
    usual: dict[str, Any] = msgspec.to_builtins(Dialect())
    table = {key: value for key, value in table.items() if value != usual[key] and key != "name"}
    for key in table.keys() & {"event", "errors"}:
        table[key] = {name: held for name, held in table[key].items() if held != usual[key][name]}
    return table


def flow_name(path: str, taken: Collection[str]) -> str:
    """Name a flow after its path: by its last segment that says something and is not taken."""
    segments = [part for part in path.split("/") if _NAME.fullmatch(part)]
    telling = [part for part in segments if part.lower() not in _NO_NAMES]
    joined = ("-".join(segments[-count:]) for count in range(2, len(segments) + 1))
    for name in (*reversed(telling), *joined, _DEFAULT_NAME):
        if name not in taken and _NAME.fullmatch(name):
            return name
    return next(name for n in range(2, 100) if (name := f"{_DEFAULT_NAME}-{n}") not in taken)


def route_keys_in(body: Mapping[str, Any]) -> dict[str, str]:
    """Find the ids in a request by their names: route key → where it stands, with dots."""
    places: dict[str, str] = {}
    for path, name in _ids(body, "", 0):
        places.setdefault(name, path)
    found = {}
    for route_key, names in _KEYS.items():
        path = next((places[name] for name in names if name in places), "")
        if path:
            found[route_key] = path
    if SESSION not in found and "id" in body and isinstance(body.get("messages"), list):
        found = {SESSION: "id", **found}  # as the AI SDK's useChat sends it
    return found


def _ids(value: Mapping[str, Any], above: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield path and name, in snake case, of what may be an id; the outer ones first."""
    below = []
    for key, held in value.items():
        if not _FIELD.fullmatch(key):
            continue
        path = f"{above}.{key}" if above else key
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower().replace("-", "_")
        if isinstance(held, Mapping):
            below.append((path, held))
            if _is_id(held.get("id")):
                yield f"{path}.id", f"{name}_id"
        elif _is_id(held):
            yield path, name
    for path, held in below:
        if depth < _DEPTH:
            yield from _ids(held, path, depth + 1)


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and bool(str(value).strip())


def _tables(name: str, table: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table as lines, its own values before the tables below it."""
    yield f"[{name}]"
    below = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    for key, value in table.items():
        if key not in below:
            yield f"{_key(key)} = {toml(value)}"
    for key, value in below.items():
        yield ""
        yield f"[{name}.{_key(key)}]"
        for inner, held in value.items():
            yield f"{_key(inner)} = {toml(held)}"


def toml(value: Any) -> str:
    """Write a value as TOML, on one line."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return _text(value)
        case Mapping():
            pairs = (f"{_key(key)} = {toml(held)}" for key, held in value.items())
            return f"{{ {', '.join(pairs)} }}" if value else "{}"
        case Sequence():
            return f"[{', '.join(map(toml, value))}]"
        case _:
            return str(value)


def _text(value: str) -> str:
    """Write a text: as it is where it has quotes of JSON in it and nothing that hinders that."""
    if '"' in value and "'" not in value and value.isprintable():
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)
