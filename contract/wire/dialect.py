"""Dialects: where a wire keeps its events' names, texts, tool calls, endings and errors.

The built-in flows declare theirs in Python, every other wire in a small TOML file; both are the
same `Dialect`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, Protocol

import msgspec

from contract.declarations import DeclarationRefused, convert_to_struct, parse_toml
from contract.grammar import Grammar
from contract.wire.paths import ANY_DEPTH, path_fault, path_of

EVERY = "*"
"""In a table by event names: any event."""

Growth = Literal["delta", "cumulative"]
"""Whether an event brings the next piece of a text, or all of it so far."""
Framing = Literal["sse", "ndjson", "text"]
"""Server-sent events, lines of JSON, or plain text: pieces as they come, to the end of the body."""
Kind = Literal["string", "number", "boolean", "object", "array"]
Paths = str | tuple[str, ...]
"""One path, or several of which each counts."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file; unknown keys are refused."""


class EventNames(_Table, frozen=True, kw_only=True):
    """Names of events: the value at `path`, else the SSE `event:` field, else `default`.

    `names` translates; a value that is no string is looked up as JSON (`true`, `7`). Where a path
    names events, their `event:` lines count beside it, for clients dispatch on these; `line =
    "ignore"`: they do not. What stands at `suffix` is added to the name, after a dot.
    """

    path: str | None = None
    suffix: str | None = None
    default: str = "message"
    names: dict[str, str] = {}
    line: Literal["count", "ignore"] = "count"


class TextPaths(_Table, frozen=True, kw_only=True):
    """Where an event keeps text that grows otherwise than the dialect's own."""

    path: Paths
    growth: Growth


TextTable = dict[str, str | tuple[str, ...] | TextPaths]
"""Where events of each name keep a text."""


class ToolPaths(_Table, frozen=True, kw_only=True):
    """Where the pieces of tool calls are: `at` each piece, all else below it.

    Without `at` a piece is the payload itself. Pieces of one index make one call. Arguments are
    joined texts or, where there are none, a value that came whole.
    """

    at: str = ""
    index: str = "index"
    id: str = "id"
    name: str = "function.name"
    arguments: Paths = "function.arguments"


class ErrorPaths(_Table, frozen=True, kw_only=True):
    """Which events report a failure, and where in them the code is (the first place with one)."""

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
    """Allowed order of events; `never_shrinks`: a cumulative text may not take anything back."""

    steps: tuple[StepTable, ...]
    never_shrinks: bool = True


class Dialect(_Table, frozen=True, kw_only=True):
    """A declaration of a wire, enough to read and compare its streams without code.

    Tables `text`, `reasoning`, `ignore`, `ids` and `required` go by event name, `"*"` for any
    event. `parts` are events of their own that share a frame with others. A payload equal to a name
    in `terminal` (`[DONE]`) is that event. Of plain text the payload is text, too, and no event
    ends it. `empty = "ignore"`: nulls and empty objects and lists are as good as absent. `ids` are
    those by which a client knows what events belong together. `failure` are the frames that end a
    broken stream honestly, `{code}` in them is replaced by the code of the failure.
    """

    name: str = ""
    framing: Framing = "sse"
    payload: Literal["json", "text"] = "json"
    growth: Growth = "delta"
    empty: Literal["count", "ignore"] = "count"
    event: EventNames = EventNames()
    text: TextTable = {}
    reasoning: TextTable = {}
    tools: ToolPaths | None = None
    parts: dict[str, Paths] = {}
    terminal: tuple[str, ...] = ()
    errors: ErrorPaths = ErrorPaths()
    ignore: dict[str, tuple[str, ...]] = {}
    ids: dict[str, Paths] = {}
    skip: tuple[str, ...] = ()
    required: dict[str, dict[str, Kind]] = {}
    grammar: GrammarTable | None = None
    failure: tuple[str | FailureFrame, ...] = ()

    @property
    def locates_text(self) -> bool:
        """Whether it declares where texts are: without, no two streams of it can be matched."""
        if self.payload == "text":
            return self.framing != "ndjson"  # white space around a line is no part of its text
        return bool(self.text)


class Wire(Protocol):
    """What comparing streams needs of a wire; a `FlowSpec` is one."""

    @property
    def dialect(self) -> Dialect:
        """Where names, texts and endings are."""
        ...

    @property
    def grammar(self) -> Grammar:
        """Allowed order of events."""
        ...

    @property
    def events(self) -> Any:
        """Union of structs the payloads decode into; None when they are not declared."""
        ...


@dataclass(frozen=True, slots=True)
class RecordedWire:
    """A wire of streams recorded elsewhere."""

    dialect: Dialect
    grammar: Grammar
    events: Any = None


@cache
def built_in() -> dict[str, Dialect]:
    """Return the dialects that come with the package, by name."""
    files = (resources.files(__package__) / "dialects").iterdir()
    texts = {f.name.removesuffix(".toml"): f.read_text("utf-8") for f in files}
    return {name: dialect_of(texts[name], name, name) for name in sorted(texts)}


def dialect_of(text: str, where: str, name: str) -> Dialect:
    """Read the text of a file called `where`; `name` is used if the file names none."""
    return dialect_in(parse_toml(text, where), where, name)


def dialect_in(table: object, where: str, name: str, prefix: str = "") -> Dialect:
    """Read a table that stands at `prefix` in a file; raises `DeclarationRefused`."""
    dialect = convert_to_struct(table, Dialect, where, prefix)
    if dialect.framing == "text":
        dialect = msgspec.structs.replace(dialect, payload="text", errors=ErrorPaths(events=()))
    for key, why in _faults(dialect):
        raise DeclarationRefused(where, f"{prefix}.{key}".removeprefix("."), why)
    return msgspec.structs.replace(dialect, name=dialect.name or name)


def choices_of(step: StepTable) -> list[tuple[str, str | tuple[str, ...]]]:
    """List the choices a step makes; a sound step makes one."""
    found = ((how, getattr(step, how)) for how in ("one", "maybe", "some", "many"))
    return [(how, names) for how, names in found if names]


def _faults(dialect: Dialect) -> Iterator[tuple[str, str]]:
    """Yield keys whose values cannot be meant, and why."""
    for key, paths in _paths_in(dialect):
        yield from ((key, why) for why in _path_faults(paths))
    steps = dialect.grammar.steps if dialect.grammar else ()
    for index, step in enumerate(steps):
        if len(choices_of(step)) != 1:
            yield f"grammar.steps[{index}]", "one of one, maybe, some, many is due"
    if dialect.grammar is not None and not steps:
        yield "grammar.steps", "a step is due"
    if dialect.framing == "text" and dialect.terminal:
        yield "terminal", "plain text ends where its body ends"
    if dialect.payload == "text":
        for key in ("path", "suffix"):
            if getattr(dialect.event, key):
                why = "text has no paths: events are named by the SSE field alone"
                yield f"event.{key}", why


def _path_faults(paths: Paths) -> Iterator[str]:
    listed = (paths,) if isinstance(paths, str) else paths
    if not listed:
        yield "a path is due, and the list is empty"
    for path in listed:
        if why := path_fault(path):
            yield why
        elif ANY_DEPTH in path_of(path):
            yield f"{path!r}: '{ANY_DEPTH}' is for rules; a dialect's path names every step"


def _paths_in(dialect: Dialect) -> Iterator[tuple[str, Paths]]:
    for key in ("path", "suffix"):
        if (named := getattr(dialect.event, key)) is not None:
            yield f"event.{key}", named
    for table in ("text", "reasoning"):
        for name, held in getattr(dialect, table).items():
            yield f"{table}.{name}", held.path if isinstance(held, TextPaths) else held
    yield "errors.code", dialect.errors.code
    if tools := dialect.tools:
        if tools.at:
            yield "tools.at", tools.at
        for key in ("index", "id", "name", "arguments"):
            yield f"tools.{key}", getattr(tools, key)
    for name, paths in dialect.parts.items():
        yield f"parts.{name}", paths
    for table in ("ignore", "ids"):
        for name, paths in getattr(dialect, table).items():
            yield f"{table}.{name}", paths
    for name, kinds in dialect.required.items():
        for path in kinds:
            yield f"required.{name}", path
