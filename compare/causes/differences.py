"""Differences: everything found between two runs, and how a finding is marked as a consequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from compare.findings import (
    EffectFinding,
    Finding,
    FrameFinding,
    GrammarBroken,
    OutcomeFinding,
    TextFinding,
    signature_of,
)
from compare.input.pairing import Pair
from contract.calls import EffectCall
from contract.equality import EventStream

COMPLETED = "completed"

F = TypeVar("F", bound=Finding)


@dataclass(slots=True)
class Differences:
    """Everything found between two runs, layer by layer.

    `names` are the events that the flow's grammar knows; `same_tape`: one model's answers were
    played to both.
    """

    pair: Pair
    legacy: EventStream
    graph: EventStream
    calls: tuple[Sequence[EffectCall], Sequence[EffectCall]]
    names: frozenset[str]
    same_tape: bool = True
    outcome: list[OutcomeFinding] = field(default_factory=list)
    grammar: list[GrammarBroken] = field(default_factory=list)
    frames: list[FrameFinding] = field(default_factory=list)
    text: list[TextFinding] = field(default_factory=list)
    effects: list[EffectFinding] = field(default_factory=list)


def mark(finding: F, cause: str | None) -> F:
    """Return a finding as a consequence of a cause, unless it is one already, or that cause."""
    if cause is None or finding.after is not None or cause == signature_of(finding):
        return finding
    marked: F = msgspec.structs.replace(finding, after=cause)
    return marked


def first(findings: Sequence[Finding]) -> str | None:
    """Return the signature of the first of some findings, None where there is none."""
    return signature_of(findings[0]) if findings else None
