"""The decision of the gate: one verdict, and each check that led to it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Verdict = Literal["promote", "hold", "rollback", "cannot_tell"]

EXIT_CODES: Final[dict[Verdict, int]] = {"promote": 0, "hold": 1, "rollback": 2, "cannot_tell": 3}


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One question the gate asked: its answer, in a sentence, with the figures behind it.

    `name` is stable: `sample_ratio`, `error_rate`. `verdict` is what this check alone says.
    `value` and `bound` are in `unit`; `low` and `high` are the interval of `value`. `rows` names
    where the rows behind it are: a part of a page, a query, a file.
    """

    name: str
    verdict: Verdict
    reason: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    bound: float | None = None
    unit: str = ""
    n: int = 0
    critical: bool = False
    rows: str = ""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with a flow whose candidate serves `percent` now, and why.

    `to` is the percentage asked about; `checks` has the ones that decided first.
    """

    flow: str
    verdict: Verdict
    percent: float
    to: float
    checks: tuple[Check, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """The sentences of the checks whose verdict became that of the decision."""
        return tuple(one.reason for one in self.checks if one.verdict == self.verdict)
