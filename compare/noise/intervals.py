"""Intervals: where a mean lies, and how many messages it takes to say so."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from compare.chance import CONFIDENCE

DRAWS = 2_000
DRAWN_AT_ONCE = 1 << 20
POWER = 0.8
_NORMAL = NormalDist()


def mean_interval(values: NDArray[np.float64], seed: int = 0) -> tuple[float, float]:
    """Give the 95 % interval of a mean by the seeded BCa bootstrap over at least one value.

    B. Efron, Better bootstrap confidence intervals, JASA 82 (1987).
    """
    mean, drawn = float(values.mean()), _drawn_means(values, seed)
    below = (np.mean(drawn < mean) + np.mean(drawn <= mean)) / 2
    bias = _NORMAL.inv_cdf(min(max(float(below), 1 / DRAWS), 1 - 1 / DRAWS))
    apart = values - mean
    spread = float((apart**2).sum()) ** 1.5
    skew = float((apart**3).sum()) / (6 * spread) if spread else 0.0
    outside = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [_turned(q, bias, skew) for q in (outside, 1 - outside)])
    return float(low), float(high)


def _drawn_means(values: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Draw as many values, with repetition, again and again; so many at once as fit."""
    random, n = np.random.default_rng(seed), len(values)
    rows = max(1, min(DRAWS, DRAWN_AT_ONCE // n))
    sizes = [min(rows, DRAWS - start) for start in range(0, DRAWS, rows)]
    means = [values[random.integers(n, size=(size, n))].mean(axis=1) for size in sizes]
    return np.concatenate(means)


def _turned(share: float, bias: float, skew: float) -> float:
    """Correct a quantile for bias and skew."""
    z = bias + _NORMAL.inv_cdf(share)
    return _NORMAL.cdf(bias + z / (1 - skew * z))


def needed_for_mean(spread: float, gap: float, level: float) -> int:
    """Give how many messages tell a mean from one `gap` away, one-sided, with power `POWER`.

    ((z of the level + z of the power) * standard deviation / gap) squared; Cohen, Statistical
    power analysis for the behavioral sciences (1988), 2.
    """
    z = _NORMAL.inv_cdf(1 - level) + _NORMAL.inv_cdf(POWER)
    return math.ceil((z * spread / gap) ** 2)


def needed_for_rare(share: float) -> int:
    """Give how many messages show one that `share` of all are like, with 95 %.

    (1 - share) ** n <= 0.05: the rule of three, Hanley and Lippman-Hand, JAMA 249 (1983).
    """
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - share))
