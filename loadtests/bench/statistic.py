"""Intervals for what a bench says: rounds are resampled, for requests of a round are not alone.

The percentile bootstrap over rounds (Efron and Tibshirani, *An Introduction to the Bootstrap*,
chapter 13): the statistic of 2 000 draws, with replacement and a fixed seed, of the rounds that
were measured; the interval holds the middle 95 % of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from loadtests.percentiles import percentile

DRAWS = 2_000
CONFIDENCE = 0.95
SEED = 20_261_121

Round = TypeVar("Round")

Pair = tuple[Sequence[float], Sequence[float]]
"""What one round measured of two servers: control first."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and the interval it may well lie in."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def bootstrap(
    rounds: Sequence[Round],
    statistic: Callable[[Sequence[Round]], float],
    *,
    draws: int = DRAWS,
) -> Estimate:
    """Estimate a statistic of rounds; there must be at least one."""
    chance = random.Random(SEED)
    drawn = sorted(statistic(chance.choices(rounds, k=len(rounds))) for _ in range(draws))
    tail = (1 - CONFIDENCE) / 2
    value = statistic(rounds)
    return Estimate(value, percentile(drawn, tail), percentile(drawn, 1 - tail))


def ratio_of_medians(rounds: Sequence[tuple[float, float]]) -> float:
    """Median of the rounds' ratios, first over second: pairs share the machine's mood."""
    return median(first / second for first, second in rounds)


def difference_of_p95(rounds: Sequence[Pair]) -> float:
    """Median over the rounds of P95 of the second values less P95 of the first, exact over both.

    Not P95 over all rounds together: a burst of somebody else's work in one run would decide it.
    """
    return median(_p95(second) - _p95(first) for first, second in rounds)


def _p95(values: Sequence[float]) -> float:
    return percentile(sorted(values), CONFIDENCE)
