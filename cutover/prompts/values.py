"""What the parts of a template are worth before anything is given to it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from compare.layers.prompt_sources import Literal, Piece

if TYPE_CHECKING:
    from jinja2 import nodes

    from cutover.prompts.reasons import Reason


@dataclass(frozen=True, slots=True)
class Known:
    """A constant."""

    value: object


@dataclass(frozen=True, slots=True)
class Given:
    """A variable just as the caller gives it; `safe`: not to be escaped."""

    name: str
    safe: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """Text put together from constants and variables; `safe`: escaped where that is due."""

    pieces: tuple[Piece, ...]
    safe: bool = False

    @property
    def constant(self) -> str | None:
        """The whole text, if no variable is in it."""
        if all(isinstance(piece, Literal) for piece in self.pieces):
            return "".join(piece.text for piece in self.pieces if isinstance(piece, Literal))
        return None


@dataclass(frozen=True, slots=True)
class Missing:
    """A name nobody can give."""

    name: str


@dataclass(frozen=True, slots=True)
class Unsure:
    """A name that was set where nobody knows whether, or to what."""

    why: Reason


@dataclass(frozen=True, slots=True)
class Turn:
    """The `loop` of a loop over constants."""

    index: int
    items: tuple[object, ...]

    def attribute(self, name: str) -> Known | None:
        """Give an attribute of `loop`; None for those that are not told here."""
        length = len(self.items)
        known: dict[str, object] = {
            "index": self.index + 1,
            "index0": self.index,
            "revindex": length - self.index,
            "revindex0": length - self.index - 1,
            "first": self.index == 0,
            "last": self.index == length - 1,
            "length": length,
            "depth": 1,
            "depth0": 0,
        }
        return Known(known[name]) if name in known else None


@dataclass(frozen=True, slots=True)
class Routine:
    """A macro, with the names it sees."""

    node: nodes.Macro
    frame: Frame


@dataclass(frozen=True, slots=True)
class Module:
    """An imported template: its macros and constants."""

    names: Scope


Value: TypeAlias = Known | Given | Text | Missing | Unsure | Turn | Routine | Module


@dataclass(slots=True)
class Scope:
    """Names in force; `closed`: what is not among them nobody can give."""

    parent: Scope | None = None
    closed: bool = False
    names: dict[str, Value] = field(default_factory=dict)

    def find(self, name: str) -> Value | None:
        """Give what a name is worth, None where it is the caller's to give."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            if scope.closed:
                return Missing(name)
            scope = scope.parent
        return None


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a part of a template stands: its file, its names, whether it is escaped.

    `block` is the block it is in, and how many overriding ones were asked for before it.
    """

    file: str
    scope: Scope
    exports: Scope
    escaped: bool
    chain: dict[str, list[Override]]
    block: tuple[str, int] | None = None
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Override:
    """A block of one template of a line of inheritance."""

    node: nodes.Block
    file: str
    escaped: bool


def inner_of(frame: Frame) -> Frame:
    """Give a frame whose names end with it."""
    return replace(frame, scope=Scope(frame.scope))
