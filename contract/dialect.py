"""Dialects: where a wire keeps its events' names, texts and endings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    the answer failed, `code` where their code stands; `terminal` events end a stream.
    """

    framing: Literal["sse", "ndjson"] = "sse"
    name: tuple[str, ...] | None = None
    text: Mapping[str, TextField] = field(default_factory=dict)
    reasoning: Mapping[str, TextField] = field(default_factory=dict)
    terminal: frozenset[str] = frozenset()
    failures: frozenset[str] = frozenset()
    code: tuple[str, ...] = ("code",)
