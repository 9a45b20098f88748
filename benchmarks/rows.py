"""Rows of a bench: measured figures, their targets, and intervals for them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

import msgspec
from rich.table import Table

from evidence.intervals import percentile

DIGITS = 4


class BenchRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `build/bench.json`; `ok` is None without a target, or if too busy to tell."""

    name: str
    value: float
    unit: str
    target: float | None = None
    ok: bool | None = None
    how: str


def reported(name: str, value: float, unit: str, how: str) -> BenchRow:
    """Return a figure without a target."""
    return BenchRow(name=name, value=rounded(value), unit=unit, how=how)


def at_most(name: str, value: float, unit: str, target: float, how: str) -> BenchRow:
    """Return a figure whose target is met at or below it."""
    ok = value <= target
    return BenchRow(name=name, value=rounded(value), unit=unit, target=target, ok=ok, how=how)


def at_least(name: str, value: float, unit: str, target: float, how: str) -> BenchRow:
    """Return a figure whose target is met at or above it."""
    ok = value >= target
    return BenchRow(name=name, value=rounded(value), unit=unit, target=target, ok=ok, how=how)


def rounded(value: float) -> float:
    """Round to four significant digits; measurements are less exact than that."""
    return float(f"{value:.{DIGITS}g}")


def table(rows: Sequence[BenchRow]) -> Table:
    """Return a table of rows with value, target and verdict; the file has the method."""
    laid = Table(title="bench", title_justify="left", box=None, pad_edge=False)
    laid.add_column("figure", overflow="fold")
    for heading in ("value", "target"):
        laid.add_column(heading, justify="right")
    laid.add_column("ok")
    for row in rows:
        value = f"{row.value:g} {row.unit}"
        target = "" if row.target is None else f"{row.target:g}"
        laid.add_row(row.name, value, target, verdict(row))
    return laid


def verdict(row: BenchRow) -> str:
    """Return whether a row's target is met, as markup; "" without a target."""
    if row.ok is None:
        return "" if row.target is None else "[yellow]cannot tell[/]"
    return "[green]yes[/]" if row.ok else "[red]NO[/]"


DRAWS = 2_000
CONFIDENCE = 0.95
SEED = 20_261_121

SampleRound = TypeVar("SampleRound")

Pair = tuple[Sequence[float], Sequence[float]]
"""What one round measured of two servers: control first."""


@dataclass(frozen=True, slots=True)
class IntervalEstimate:
    """A figure and the interval it may well lie in."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def bootstrap(
    rounds: Sequence[SampleRound],
    statistic: Callable[[Sequence[SampleRound]], float],
    *,
    draws: int = DRAWS,
) -> IntervalEstimate:
    """Estimate a statistic of rounds; there must be at least one."""
    chance = random.Random(SEED)
    drawn = sorted(statistic(chance.choices(rounds, k=len(rounds))) for _ in range(draws))
    tail = (1 - CONFIDENCE) / 2
    value = statistic(rounds)
    return IntervalEstimate(value, percentile(drawn, tail), percentile(drawn, 1 - tail))


def ratio_of_medians(rounds: Sequence[tuple[float, float]]) -> float:
    """Median of the rounds' ratios, first over second: pairs share the machine's mood."""
    return median(first / second for first, second in rounds)


def difference_of_p95(rounds: Sequence[Pair]) -> float:
    """Median over the rounds of P95 of the second values less P95 of the first, exact over both.

    Not P95 over all rounds together: a burst of other work in one run would decide it.
    """
    return median(_p95(second) - _p95(first) for first, second in rounds)


def _p95(values: Sequence[float]) -> float:
    return percentile(sorted(values), CONFIDENCE)
