"""Code in force: whose code ran in what was recorded, and which of it runs now.

What other code of a stack did is no evidence of what this one does (docs/decisions/0081).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from evidence.outcomes import ExchangeOutcome


class RunCode(NamedTuple):
    """A stack and the fingerprint of the code that ran, "" where that is unknown.

    A `replay` ran later than its exchange.
    """

    stack: str
    code: str
    replay: bool = False


class PairRow(NamedTuple):
    """One pair of runs that was compared.

    `began` is when its exchange did, in microseconds since the epoch; `causes` are the ids of the
    causes of differences in it, each once.
    """

    exchange: str
    began: int
    runs: tuple[RunCode, RunCode]
    causes: tuple[str, ...] = ()

    @property
    def of_one_stack(self) -> bool:
        """Whether a stack is compared with what it did before."""
        return self.runs[0].stack == self.runs[1].stack

    @property
    def replayed(self) -> bool:
        """Whether a run of it is a replay."""
        return any(run.replay for run in self.runs)


class CodeInForce(NamedTuple):
    """The fingerprint of each stack's code, as far as it is known, and since when it alone runs.

    Runs of other code began up to `since`, in microseconds since the epoch; -1: there are none.
    """

    codes: Mapping[str, str]
    since: int = -1

    def has(self, run: RunCode) -> bool:
        """Whether a run's code is in force, or unknown."""
        return not run.code or run.code == self.codes.get(run.stack, run.code)

    def counts(self, row: ExchangeOutcome) -> bool:
        """Whether an outcome is evidence."""
        return row.began > self.since and self.has(RunCode(row.assigned, row.fingerprint))

    def counts_pair(self, row: PairRow) -> bool:
        """Whether a pair is evidence; replays of this code are, whenever their exchange began."""
        recorded = not all(run.replay for run in row.runs)
        return all(map(self.has, row.runs)) and (row.began > self.since or not recorded)


def code_in_force(
    outcomes: Iterable[ExchangeOutcome], pairs: Iterable[PairRow] = ()
) -> CodeInForce:
    """Return the code that ran last, as recorded; of a stack with replays alone, that of these."""
    recorded = {(row.began, row.assigned, row.fingerprint) for row in outcomes if row.fingerprint}
    replayed: set[tuple[int, str, str]] = set()
    for pair in pairs:
        for run in pair.runs:
            if run.code:
                (replayed if run.replay else recorded).add((pair.began, run.stack, run.code))
    newest = {stack: code for _, stack, code in sorted(recorded)}
    others = (began for began, stack, code in recorded if code != newest[stack])
    since = max(others, default=-1)
    return CodeInForce({stack: code for _, stack, code in sorted(replayed)} | newest, since)
