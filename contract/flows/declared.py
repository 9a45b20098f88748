"""Flows declared in a configuration alone: their events are passed on, and only named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from contract.flow import Event, FlowSpec, PassedEvent
from contract.grammar import Grammar, many, one
from contract.wire import Dialect, FailureFrame


class DeclaredFlow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A flow as configured: its path, its wire, and what requests are routed by.

    `dialect` is what clients get. `graph_dialect` is that of graph's service, None where it is the
    same. `example` is the JSON text of a request, "" where none is configured.
    """

    path: str
    dialect: Dialect
    graph_dialect: Dialect | None = None
    route_keys: dict[str, str] = {}
    example: str = ""


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a declared flow: it has none."""


def declared_spec(name: str, declared: DeclaredFlow) -> FlowSpec:
    """Return a declared flow as router and compare see it."""
    dialect, other = declared.dialect, declared.graph_dialect
    terminal = frozenset(dialect.terminal)
    return FlowSpec(
        name=name,
        path=declared.path,
        request=dict[str, Any],
        options=NoOptions,
        events=None,
        grammar=Grammar((many(), one(*terminal)) if terminal else (many(),)),
        dialect=dialect,
        failure=DeclaredFailure(dialect),
        encode=_frame,
        route_keys=declared.route_keys,
        example=declared.example,
        other_format=declared_spec(name, replace(declared, dialect=other, graph_dialect=None))
        if other
        else None,
    )


def _frame(event: Event) -> bytes:
    return event.frame if isinstance(event, PassedEvent) else b""


@dataclass(frozen=True, slots=True)
class DeclaredFailure:
    """Ends a broken stream with the frames declared for that, or with none."""

    dialect: Dialect

    def __call__(self, _options: object, code: str, last: Event | None) -> Sequence[Event]:
        """Return the frames; a failure that the stack has reported is not reported again."""
        name = last.name if isinstance(last, PassedEvent) else ""
        terminal = self.dialect.terminal
        if name in terminal:
            return ()
        reported = name in self.dialect.errors.events
        frames = [it for it in self.dialect.failure if not reported or _data(it) in terminal]
        return tuple(PassedEvent("", self._encoded(frame, code)) for frame in frames)

    def _encoded(self, frame: str | FailureFrame, code: str) -> bytes:
        data = _data(frame).replace("{code}", code)
        if self.dialect.framing != "sse":
            return data.encode() + b"\n" * (self.dialect.framing == "ndjson")
        event = f"event: {frame.event}\n" if isinstance(frame, FailureFrame) and frame.event else ""
        lines = "".join(f"data: {line}\n" for line in data.split("\n"))
        return f"{event}{lines}\n".encode()


def _data(frame: str | FailureFrame) -> str:
    return frame if isinstance(frame, str) else frame.data
