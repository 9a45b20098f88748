"""Pairs: which two runs of an exchange are compared, and why others are not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compare.reading import Exchange
    from contract.records import EntryRecord, Role, RunRecord

CONTROL = "legacy"
CANDIDATE = "graph"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs of one exchange; findings read control → candidate, whoever served."""

    exchange: str
    flow: str
    control: RunRecord
    candidate: RunRecord
    tape: tuple[EntryRecord, ...]

    @property
    def began(self) -> int:
        """When the exchange began, microseconds since the Unix epoch."""
        return min(self.control.began, self.candidate.began)

    @property
    def served(self) -> str:
        """The stack whose frames the client got."""
        return self.control.served


@dataclass(frozen=True, slots=True)
class Unpaired:
    """An exchange that is counted, not compared."""

    reason: str


def pair_of(exchange: Exchange) -> Pair | Unpaired:
    """Choose the runs to compare."""
    runs = _chosen(exchange)
    if len(runs) < 2:  # noqa: PLR2004 (a pair)
        return Unpaired("one run only")
    control = next((run for run in runs if run.stack == CONTROL), None)
    candidate = next((run for run in runs if run.stack == CANDIDATE), None)
    if control is None or candidate is None:
        return Unpaired("both runs of one stack")
    if "cancelled" in {control.outcome, candidate.outcome}:
        return Unpaired("cancelled")
    if _redacted_recording(control, candidate):
        return Unpaired("redacted: replay both stacks")
    return Pair(control.exchange, control.flow, control, candidate, _tape(exchange))


def _chosen(exchange: Exchange) -> Exchange:
    """A failed run goes with its successor, a replay with a replay, else the first two stacks."""
    fallback = _of_role(exchange, "fallback")
    if fallback:
        return _of_role(exchange, "serving") + fallback
    replays = _of_role(exchange, "replay")
    if len({run.stack for run in replays}) > 1:
        return replays
    return exchange


def _of_role(exchange: Exchange, role: Role) -> Exchange:
    return tuple(run for run in exchange if run.role == role)


def _redacted_recording(control: RunRecord, candidate: RunRecord) -> bool:
    """A replay cannot repeat values that were taken out of the recording."""
    replayed = [run.role == "replay" for run in (control, candidate)]
    return any(replayed) and not all(replayed) and (control.redacted or candidate.redacted)


def _tape(exchange: Exchange) -> tuple[EntryRecord, ...]:
    return next((run.tape for run in exchange if run.tape is not None), ())
