"""Pairs: which two runs of an exchange are compared, and why others are not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from compare.input.captures import Exchange
from contract.records import EntryRecord, Outcome, Role, RunRecord

CONTROL = "legacy"
CANDIDATE = "graph"
ONE_RUN = "one run only"
REPLAY: Role = "replay"
Sides = tuple[str, str]
"""What control and candidate are called where their streams stand side by side."""
STACKS: Sides = (CONTROL, CANDIDATE)
_AGE = {True: "it is now", False: "recorded"}


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

    @property
    def basis(self) -> str:
        """Say what is compared with what where a run is a replay; "" for two recorded ones."""
        return basis_of(self.control, self.candidate)

    @property
    def sides(self) -> Sides:
        """What both runs are called."""
        return sides_of(self.control.stack, self.candidate.stack)


@dataclass(frozen=True, slots=True)
class Unpaired:
    """An exchange that is counted, not compared."""

    reason: str


class Kind(Protocol):
    """What it takes to choose runs: a run's record has it, and so has a glance at one."""

    @property
    def role(self) -> Role:
        """As in `RunRecord`, and so below."""
        ...

    @property
    def stack(self) -> str:
        """The stack that ran."""
        ...

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        ...

    @property
    def redacted(self) -> bool:
        """Whether values were taken out."""
        ...


R = TypeVar("R", bound=Kind)


def pair_of(exchange: Exchange) -> Pair | Unpaired:
    """Choose the runs to compare."""
    chosen = choose(exchange)
    if isinstance(chosen, Unpaired):
        return chosen
    control, candidate = chosen
    return Pair(control.exchange, control.flow, control, candidate, _tape(exchange))


def basis_of(control: Kind, candidate: Kind) -> str:
    """Say what is compared with what where a run is a replay; "" for two recorded ones."""
    if control.role != REPLAY != candidate.role:
        return ""
    runs = control, candidate
    return " → ".join(f"{run.stack} as {_AGE[run.role == REPLAY]}" for run in runs)


def sides_of(control: str, candidate: str) -> Sides:
    """Name both sides by their stacks; of one stack, by when it ran."""
    if control == candidate:
        return f"{control} recorded", f"{control} now"
    return control, candidate


def choose(exchange: tuple[R, ...]) -> tuple[R, R] | Unpaired:
    """Choose control and candidate among the runs of one exchange, or say why there are none."""
    runs = _chosen(exchange)
    if len(runs) < 2:  # noqa: PLR2004 (a pair)
        return Unpaired(ONE_RUN)
    sides = _sides(runs)
    if sides is None:
        return Unpaired("both runs of one stack")
    control, candidate = sides
    if "cancelled" in {control.outcome, candidate.outcome}:
        return Unpaired("cancelled")
    if _redacted_recording(control, candidate):
        return Unpaired("redacted: replay both stacks")
    return control, candidate


def counterpart(exchange: tuple[R, ...], stack: str) -> R | None:
    """Give the recorded run a replay of a stack is compared with.

    The other stack's, else the same stack's as it was then; None when neither ran to its end.
    """
    recorded = [run for run in exchange if run.role != REPLAY and run.outcome != "cancelled"]
    others = [run for run in recorded if run.stack != stack]
    return next(iter(others or recorded), None)


def _chosen(exchange: tuple[R, ...]) -> tuple[R, ...]:
    """A replay goes with a replay or its counterpart, a failed run with its successor.

    Otherwise the first runs of both stacks.
    """
    replays = _of_role(exchange, REPLAY)
    if len({run.stack for run in replays}) > 1:
        return replays
    if replays:
        recorded = counterpart(exchange, replays[0].stack)
        return replays[:1] if recorded is None else (recorded, replays[0])
    fallback = _of_role(exchange, "fallback")
    if fallback:
        return _of_role(exchange, "serving") + fallback
    return exchange


def _sides(runs: tuple[R, ...]) -> tuple[R, R] | None:
    """Say which run is the control; of one stack, the one that is no replay."""
    control = next((run for run in runs if run.stack == CONTROL), None)
    candidate = next((run for run in runs if run.stack == CANDIDATE), None)
    if control is not None and candidate is not None:
        return control, candidate
    first, second, *_ = runs
    return (first, second) if second.role == REPLAY != first.role else None


def _of_role(exchange: tuple[R, ...], role: Role) -> tuple[R, ...]:
    return tuple(run for run in exchange if run.role == role)


def _redacted_recording(control: Kind, candidate: Kind) -> bool:
    """A replay cannot repeat values that were taken out of the recording."""
    replayed = [run.role == REPLAY for run in (control, candidate)]
    return any(replayed) and not all(replayed) and (control.redacted or candidate.redacted)


def _tape(exchange: Exchange) -> tuple[EntryRecord, ...]:
    return next((run.tape for run in exchange if run.tape is not None), ())
