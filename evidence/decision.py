"""The decision of the gate: one verdict, and each check that led to it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Verdict = Literal["promote", "hold", "rollback", "cannot_tell"]

EXIT_CODES: Final[dict[Verdict, int]] = {"promote": 0, "hold": 1, "rollback": 2, "cannot_tell": 3}
NAMED: Final = 20
"""Exchanges behind a figure that are named."""


class StackFigure(msgspec.Struct, frozen=True, kw_only=True):
    """What one stack did with the `n` requests assigned to it.

    `as_served` is the same figure over what the stack served, whoever it was assigned to.
    `exchanges` are the ids of the rows behind it that count most: the failures, the slowest.
    """

    stack: str
    value: float | None
    n: int
    as_served: float | None = None
    exchanges: tuple[str, ...] = ()


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One question the gate asked: its answer, in a sentence, with the figures behind it.

    `name` is stable: `sample_ratio`, `failures`. `verdict` is what this check alone says.
    `value` and `bound` are in `unit`; `low` and `high` are the interval of `value`. `figures` are
    those of both stacks, control first, in `figure_unit`. `rows` is where the rows behind it are:
    a query of `rows.jsonl`, a file.
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
    figures: tuple[StackFigure, ...] = ()
    figure_unit: str = ""
    rows: str = ""


class LastingWrites(msgspec.Struct, frozen=True, kw_only=True):
    """Writes of one kind that the candidate made while it served: a rollback leaves them.

    `store` is the port, such as `memory`; `what` its operation, with the tool, the action or the
    effect. Of `in_doubt` ones among them nobody knows whether they happened.
    """

    store: str
    what: str
    count: int
    in_doubt: int = 0
    exchanges: tuple[str, ...] = ()


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with a flow whose candidate serves `percent` now, and why.

    `to` is the percentage asked about; `checks` has the ones that decided first. `compared` counts
    the outcomes of both stacks together, from `first` to `last`, in microseconds since the epoch;
    `left_out` counts the others by reason. `lasting` is what a rollback cannot undo, since the
    candidate first served.
    """

    flow: str
    verdict: Verdict
    percent: float
    to: float
    checks: tuple[Check, ...]
    captures: str = ""
    compared: int = 0
    first: int = 0
    last: int = 0
    left_out: dict[str, int] = {}
    lasting: tuple[LastingWrites, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """The sentences of the checks whose verdict became that of the decision."""
        return tuple(one.reason for one in self.checks if one.verdict == self.verdict)
