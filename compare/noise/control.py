"""The control check: legacy against legacy on one tape must not differ at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from compare.comparison import Comparer
from compare.input.captures import Exchange
from compare.input.pairing import CONTROL, REPLAY, Pair
from contract.flow import FlowSpec
from contract.operations import MODEL_STREAM
from contract.records import RunRecord

NAMED_AT_MOST = 20
_ENDED = frozenset({"completed", "refused", "failed"})


class ControlCheck(msgspec.Struct, frozen=True):
    """Pairs of two legacy runs on one tape; the first exchanges that differ are `named`.

    A tape leaves nothing to chance: a difference is the legacy code's (it was changed since, or it
    reads something that is not on the tape) or the harness's own.
    """

    checked: int = 0
    differing: int = 0
    named: tuple[str, ...] = ()

    def merged(self, other: ControlCheck) -> ControlCheck:
        """Add what was checked elsewhere."""
        return ControlCheck(
            self.checked + other.checked,
            self.differing + other.differing,
            (*self.named, *other.named)[:NAMED_AT_MOST],
        )

    @property
    def holds(self) -> bool:
        """Whether it was checked and nothing differed."""
        return self.checked > 0 and not self.differing


NO_CHECK = ControlCheck()


def control_text(check: ControlCheck) -> str:
    """Describe what the check of legacy against legacy on one tape found."""
    if not check.checked:
        return "legacy against legacy on one tape: not checked, there are no two such runs"
    pairs = "1 pair" if check.checked == 1 else f"{check.checked:,} pairs"
    if not check.differing:
        return f"legacy against legacy on one tape: checked, exactly zero differences in {pairs}"
    verb = "differs" if check.differing == 1 else "differ"
    return (
        f"legacy against legacy on one tape: {check.differing:,} of {pairs} {verb}, and none may: "
        "legacy was changed since, or reads something that is not on the tape"
    )


class ControlChecker:
    """Checks the legacy runs of exchanges, cuts of the text included.

    Unknown flows are skipped, and declared ones: no tape has all that their services did.
    """

    def __init__(self, flows: Mapping[str, FlowSpec]) -> None:
        self._comparers = {
            name: Comparer(spec, "exact") for name, spec in flows.items() if not spec.declared
        }
        self.check = ControlCheck()

    def add(self, pair: Pair) -> None:
        """Compare a pair of two legacy runs and count it."""
        comparer = self._comparers.get(pair.flow)
        if comparer is not None:
            differs = comparer.judge(pair) != "equal"
            named = (pair.exchange,) if differs else ()
            self.check = self.check.merged(ControlCheck(1, int(differs), named))


def control_pairs(exchange: Sequence[RunRecord]) -> Iterator[Pair]:
    """List the pairs of two legacy runs on one tape: each replay with the first run there was.

    What was taken out of a recording cannot be repeated: then only replays go together. A run that
    did not end by itself may have been ended by the clock, and one that took over began in the
    middle.
    """
    legacy = [
        run
        for run in distinct(exchange)
        if run.stack == CONTROL and run.outcome in _ENDED and run.role != "fallback"
    ]
    recorded = [run for run in legacy if run.tape and is_live(run) and not run.redacted]
    played = [run for run in legacy if not is_live(run)]
    replays = [run for run in played if run.role == REPLAY]
    others = [run for run in played if run.role != REPLAY and not run.redacted]
    one_tape = (*recorded[:1], *others, *replays)
    for run in one_tape[1:]:
        first = one_tape[0]
        yield Pair(first.exchange, first.flow, first, run, first.tape or ())


def owning_tape(exchange: Exchange) -> Exchange:
    """Put the tape itself into every run of an exchange that names calls of it."""
    tape = next((run.tape for run in exchange if run.tape is not None), None)
    return tuple(
        msgspec.structs.replace(run, tape=tape) if run.plays and run.tape is None else run
        for run in exchange
    )


def is_live(run: RunRecord) -> bool:
    """Whether every answer of a model came from the model.

    A run that lists no calls had no tape to play, unless it is a replay.
    """
    if run.role == REPLAY:
        return False
    if not run.plays:
        return True
    model = MODEL_STREAM.port, MODEL_STREAM.name
    answers = [play.how for play in run.plays if (play.port, play.op) == model]
    return bool(answers) and all(how == "live" for how in answers)


def distinct(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Leave out cancelled runs, and runs that were read twice."""
    seen: set[object] = set()
    kept: list[RunRecord] = []
    for run in runs:
        name = (run.exchange, run.role, run.stack, run.began, run.frames)
        if run.outcome != "cancelled" and name not in seen:
            seen.add(name)
            kept.append(run)
    return kept
