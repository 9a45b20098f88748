"""Dialects: where a wire keeps its events' names, texts and endings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal, Protocol

import msgspec

from contract.declarations import DeclarationRefused, converted, parsed
from contract.grammar import Grammar
from contract.wire.paths import ANY_DEPTH, path_fault, path_of

Growth = Literal["delta", "cumulative"]


@dataclass(frozen=True, slots=True)
class TextField:
    """Where an event keeps text: the path of keys into its JSON, and how it grows."""

    path: tuple[str, ...]
    growth: Growth


@dataclass(frozen=True, slots=True)
class Dialect:
    """A small declaration of a wire, enough to compare streams without code.

    `name` is the path of the key that names an event, or None when the SSE `event:` field does.
    `text` and `reasoning` say, by event name, where text stands; `failures` are events that say
    the answer failed, `code` where their code stands; `terminal` events end a stream. `fault` is
    the key under which whoever normalised a stream has noted what is wrong with an event. `file`
    is the declaration of a wire known by nothing else; what it says goes before `name`, `text` and
    `reasoning`, which are empty then.
    """

    framing: Literal["sse", "ndjson"] = "sse"
    name: tuple[str, ...] | None = None
    text: Mapping[str, TextField] = field(default_factory=dict)
    reasoning: Mapping[str, TextField] = field(default_factory=dict)
    terminal: frozenset[str] = frozenset()
    failures: frozenset[str] = frozenset()
    code: tuple[str, ...] = ("code",)
    fault: str = ""
    file: DialectFile | None = None


class Wire(Protocol):
    """What it takes to compare streams: where things stand, and which streams are sound.

    `events` is the union of structs their payloads decode into, None when they are not declared.
    A `FlowSpec` is one.
    """

    @property
    def dialect(self) -> Dialect:
        """Where things stand."""
        ...

    @property
    def grammar(self) -> Grammar:
        """The allowed order of events."""
        ...

    @property
    def events(self) -> Any:
        """The union of structs the payloads decode into."""
        ...


@dataclass(frozen=True, slots=True)
class PlainWire:
    """A wire nobody serves here: streams recorded elsewhere."""

    dialect: Dialect
    grammar: Grammar
    events: Any = None


EVERY = "*"
"""In a table by event names: any event."""

Kind = Literal["string", "number", "boolean", "object", "array"]
Paths = str | tuple[str, ...]
"""One path, or several of which each counts."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file; what nobody knows is refused."""


class EventNames(_Table, frozen=True, kw_only=True):
    """What an event is called: what stands at `path`, else the SSE `event:` field, else `default`.

    `names` translates; a value that is no string is looked up as JSON (`true`, `7`).
    """

    path: str | None = None
    default: str = "message"
    names: dict[str, str] = {}


class TextPaths(_Table, frozen=True, kw_only=True):
    """Where an event keeps text that grows otherwise than the dialect's own."""

    path: Paths
    growth: Growth


class ToolPaths(_Table, frozen=True, kw_only=True):
    """Where the pieces of tool calls are: `at` each piece, all else below it.

    Without `at` a piece is the payload itself. Pieces of one index make one call.
    """

    at: str = ""
    index: str = "index"
    id: str = "id"
    name: str = "function.name"
    arguments: str = "function.arguments"


class ErrorPaths(_Table, frozen=True, kw_only=True):
    """Which events say that the answer failed, and where in them the code is (the first found)."""

    events: tuple[str, ...] = ("error",)
    code: Paths = "code"


class StepTable(_Table, frozen=True, kw_only=True):
    """One place in the order of events: one of the four, with the names that may stand there."""

    one: Paths | None = None
    maybe: Paths | None = None
    some: Paths | None = None
    many: Paths | None = None


class FailureFrame(_Table, frozen=True, kw_only=True):
    """A frame that ends a broken stream: its SSE `event:` name, if any, and its payload."""

    event: str = ""
    data: str


class GrammarTable(_Table, frozen=True, kw_only=True):
    """Which streams are sound; `never_shrinks`: cumulative text may not take anything back."""

    steps: tuple[StepTable, ...]
    never_shrinks: bool = True


class DialectFile(_Table, frozen=True, kw_only=True):
    """A dialect: where a wire keeps names, texts, tool calls, endings and errors.

    Tables `text`, `reasoning`, `ignore` and `required` go by event name, `"*"` for any event.
    `parts` are events of their own that share a frame with others. A payload equal to a name in
    `terminal` (`[DONE]`) is that event. `empty = "ignore"`: nulls and empty objects and lists are
    as good as absent. `failure` are the frames that end a broken stream honestly, `{code}` in them
    stands for what went wrong.
    """

    name: str = ""
    framing: Literal["sse", "ndjson"] = "sse"
    payload: Literal["json", "text"] = "json"
    growth: Growth = "delta"
    empty: Literal["count", "ignore"] = "count"
    event: EventNames = EventNames()
    text: dict[str, str | tuple[str, ...] | TextPaths] = {}
    reasoning: dict[str, str | tuple[str, ...] | TextPaths] = {}
    tools: ToolPaths | None = None
    parts: dict[str, Paths] = {}
    terminal: tuple[str, ...] = ()
    errors: ErrorPaths = ErrorPaths()
    ignore: dict[str, tuple[str, ...]] = {}
    skip: tuple[str, ...] = ()
    required: dict[str, dict[str, Kind]] = {}
    grammar: GrammarTable | None = None
    failure: tuple[str | FailureFrame, ...] = ()


_HOWS = ("one", "maybe", "some", "many")


def choices_of(step: StepTable) -> list[tuple[str, str | tuple[str, ...]]]:
    """List what a step says; a sound one says one thing."""
    said = ((how, getattr(step, how)) for how in _HOWS)
    return [(how, names) for how, names in said if names]


_SUFFIX = ".toml"


@cache
def built_in() -> dict[str, DialectFile]:
    """Give the dialects that come along, by name: they are part of the code."""
    here = resources.files(__package__) / "dialects"
    texts = {
        place.name.removesuffix(_SUFFIX): place.read_text("utf-8")
        for place in here.iterdir()
        if place.name.endswith(_SUFFIX)
    }
    return {name: dialect_of(texts[name], name, name) for name in sorted(texts)}


def dialect_of(text: str, where: str, name: str) -> DialectFile:
    """Read the text of a file called `where`; `name` if it has none of its own."""
    return dialect_in(parsed(text, where), where, name)


def dialect_in(table: object, where: str, name: str, prefix: str = "") -> DialectFile:
    """Read a table that stands at `prefix` in a file; raises `DeclarationRefused`."""
    file = converted(table, DialectFile, where, prefix)
    for key, why in _unsound(file):
        raise DeclarationRefused(where, f"{prefix}.{key}".removeprefix("."), why)
    return msgspec.structs.replace(file, name=file.name or name)


def _unsound(file: DialectFile) -> Iterator[tuple[str, str]]:
    """List what cannot be meant."""
    for key, places in _paths(file):
        yield from ((key, why) for why in _astray(places))
    steps = file.grammar.steps if file.grammar else ()
    for index, step in enumerate(steps):
        if len(choices_of(step)) != 1:
            yield f"grammar.steps[{index}]", "one of one, maybe, some, many is due"
    if file.grammar is not None and not steps:
        yield "grammar.steps", "a step is due"
    if file.payload == "text" and file.event.path:
        yield "event.path", "text has no paths: events are named by the SSE field alone"


def _astray(places: Paths) -> Iterator[str]:
    """Say of paths why they are none."""
    held = (places,) if isinstance(places, str) else places
    if not held:
        yield "a path is due, and the list is empty"
    for path in held:
        why = path_fault(path)
        if why:
            yield why
        elif ANY_DEPTH in path_of(path):
            yield f"{path!r}: '{ANY_DEPTH}' is for rules; a dialect's path names every step"


def _paths(file: DialectFile) -> Iterator[tuple[str, Paths]]:
    if file.event.path is not None:
        yield "event.path", file.event.path
    for table in ("text", "reasoning"):
        for name, place in getattr(file, table).items():
            yield f"{table}.{name}", place.path if isinstance(place, TextPaths) else place
    yield "errors.code", file.errors.code
    yield from _tool_paths(file.tools) if file.tools else ()
    for name, places in file.parts.items():
        yield f"parts.{name}", places
    for name, paths in file.ignore.items():
        yield f"ignore.{name}", paths
    for name, kinds in file.required.items():
        for path in kinds:
            yield f"required.{name}", path


def _tool_paths(tools: ToolPaths) -> Iterator[tuple[str, str]]:
    if tools.at:
        yield "tools.at", tools.at
    for name in ("index", "id", "name", "arguments"):
        yield f"tools.{name}", getattr(tools, name)
