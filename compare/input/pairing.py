"""Pairs: which two runs of an exchange are compared, and why others are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compare.input.captures import Exchange
from contract.records import EntryRecord, Role, RunRecord

CONTROL = "legacy"
CANDIDATE = "graph"
ONE_RUN = "one run only"
REDACTED = "redacted: replay both stacks"
SECOND_RUN_MISSING = "its second run was started and is missing"
SERVED_RUN_MISSING = "its served run is missing"
NOT_STARTED: Mapping[str, str] = {
    "not_sampled": "not sampled",
    "dropped": "its second run was dropped",
    "cancelled": "no second run, it was cancelled",
}
"""Why an exchange has one run, by what its record says of the second."""
REPLAY: Role = "replay"
Sides = tuple[str, str]
"""What control and candidate are called where their streams stand side by side."""
STACKS: Sides = (CONTROL, CANDIDATE)
_AGE = {True: "it is now", False: "recorded"}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs of one exchange; findings read control → candidate, whichever served."""

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
        """What is compared with what where a run is a replay; "" for two recorded ones."""
        runs = self.control, self.candidate
        if REPLAY not in {run.role for run in runs}:
            return ""
        return " → ".join(f"{run.stack} as {_AGE[run.role == REPLAY]}" for run in runs)

    @property
    def sides(self) -> Sides:
        """What both runs are called."""
        return sides_of(self.control.stack, self.candidate.stack)


@dataclass(frozen=True, slots=True)
class Unpaired:
    """An exchange that is counted, not compared; `missing`: a run it must have is not there.

    `ledger` is where its second run ended, `dropped(queue_full)`; "" where the record says nothing.
    """

    reason: str
    missing: bool = False
    ledger: str = ""


def sides_of(control: str, candidate: str) -> Sides:
    """Name both sides by their stacks; runs of one stack by when they ran."""
    if control == candidate:
        return f"{control} recorded", f"{control} now"
    return control, candidate


def pair_of(exchange: Exchange) -> Pair | Unpaired:
    """Choose the runs to compare, or say why there are none."""
    runs = _chosen(exchange)
    if len(runs) <= 1:
        return _unpaired(exchange)
    sides = _sides(runs)
    if sides is None:
        return Unpaired("both runs of one stack")
    control, candidate = sides
    if "cancelled" in {control.outcome, candidate.outcome}:
        return Unpaired("cancelled")
    replays = sum(run.role == REPLAY for run in sides)
    if replays == 1 and (control.redacted or candidate.redacted):
        # A replay cannot repeat values that were taken out of the recording.
        return Unpaired(REDACTED)
    tape = next((run.tape for run in exchange if run.tape is not None), ())
    return Pair(control.exchange, control.flow, control, candidate, tape)


def is_untaped(pair: Pair) -> bool:
    """Whether a shadow answered as its served run did: with nothing on a tape to play."""
    runs = pair.control, pair.candidate
    return (
        any(run.role == "shadow" for run in runs)
        and not pair.tape
        and not any(run.plays or run.outcome == "refused" for run in runs)
    )


def counterpart(exchange: Exchange, stack: str) -> RunRecord | None:
    """Return the recorded run a replay of a stack is compared with.

    The other stack's, else the same stack's as it was then; None when neither ran to its end.
    """
    recorded = [run for run in exchange if run.role != REPLAY and run.outcome != "cancelled"]
    others = [run for run in recorded if run.stack != stack]
    return next(iter(others or recorded), None)


def _chosen(exchange: Exchange) -> Exchange:
    """Choose a replay with a replay or its counterpart, a failed run with its successor.

    Otherwise the first runs of both stacks.
    """
    replays = _of_role(exchange, REPLAY)
    if len({run.stack for run in replays}) > 1:
        return replays
    if replays:
        recorded = counterpart(exchange, replays[0].stack)
        return replays[:1] if recorded is None else (recorded, replays[0])
    fallback = _of_role(exchange, "fallback")
    return _of_role(exchange, "serving") + fallback if fallback else exchange


def _sides(runs: Exchange) -> tuple[RunRecord, RunRecord] | None:
    """Find control and candidate; of one stack, the control is the run that is no replay."""
    control = next((run for run in runs if run.stack == CONTROL), None)
    candidate = next((run for run in runs if run.stack == CANDIDATE), None)
    if control is not None and candidate is not None:
        return control, candidate
    first, second, *_ = runs
    return (first, second) if second.role == REPLAY != first.role else None


def _unpaired(exchange: Exchange) -> Unpaired:
    """Return why there is one run: the other is missing, or was never started."""
    serving = next(iter(_of_role(exchange, "serving")), None)
    if serving is None:
        return Unpaired(SERVED_RUN_MISSING, missing=True)
    if serving.shadow == "due" and len(exchange) == 1:
        return Unpaired(SECOND_RUN_MISSING, missing=True)
    if serving.shadow not in NOT_STARTED:
        return Unpaired(ONE_RUN)
    why = f" ({serving.shadow_reason})" if serving.shadow_reason else ""
    ledger = f"{serving.shadow}({serving.shadow_reason})"
    return Unpaired(f"{NOT_STARTED[serving.shadow]}{why}", ledger=ledger)


def _of_role(exchange: Exchange, role: Role) -> Exchange:
    return tuple(run for run in exchange if run.role == role)
