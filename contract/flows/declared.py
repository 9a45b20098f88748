"""Flows declared in a configuration alone: their wire is passed on, and only named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from contract.flow import Event, FlowSpec, PassedEvent
from contract.grammar import Grammar, many, one
from contract.wire.dialect import Dialect, FailureFrame


class DeclaredFlow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is declared of a flow: where it is asked, its wire, what requests are routed by."""

    path: str
    dialect: Dialect
    route_keys: dict[str, str] = {}


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A declared flow has no options: what it does is its stacks' own."""


def declared_spec(name: str, declared: DeclaredFlow) -> FlowSpec:
    """Give a declared flow as router and compare see it."""
    dialect = declared.dialect
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
    )


def _frame(event: Event) -> bytes:
    return event.frame if isinstance(event, PassedEvent) else b""


@dataclass(frozen=True, slots=True)
class DeclaredFailure:
    """Ends a broken stream with the frames declared for that, or with none."""

    dialect: Dialect

    def __call__(self, _options: object, code: str, last: Event | None) -> Sequence[Event]:
        """Give the frames; a failure the stack has told itself is not told again."""
        name = last.name if isinstance(last, PassedEvent) else ""
        if name in self.dialect.terminal:
            return ()
        told = name in self.dialect.errors.events
        said = [
            one for one in self.dialect.failure if not told or _data(one) in self.dialect.terminal
        ]
        return tuple(PassedEvent("", self._framed(one, code)) for one in said)

    def _framed(self, said: str | FailureFrame, code: str) -> bytes:
        data = _data(said).replace("{code}", code)
        if self.dialect.framing == "ndjson":
            return data.encode() + b"\n"
        event = f"event: {said.event}\n" if isinstance(said, FailureFrame) and said.event else ""
        lines = "".join(f"data: {line}\n" for line in data.split("\n"))
        return f"{event}{lines}\n".encode()


def _data(said: str | FailureFrame) -> str:
    return said if isinstance(said, str) else said.data
