"""Dialects: where a wire keeps its events' names, texts and endings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.dialects.file import DialectFile
    from contract.grammar import Grammar

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
