"""Tests of what could be chance, and how many cases it takes to tell."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log

import numpy as np
from scipy.special import gammaln, ndtri

from evidence.intervals import CONFIDENCE

POWER = 0.8
_SLACK = 1e-7


def fisher(hits: tuple[int, int], trials: tuple[int, int]) -> float:
    """Return the two-sided p-value of two shares being one: Fisher's exact test.

    Sums the hypergeometric probabilities that are no greater than that of what was seen, ties
    within 1e-7 included, as R's `fisher.test` does (Agresti, Categorical Data Analysis, 3.5.1).
    """
    successes = sum(hits)
    low, high = max(0, successes - trials[1]), min(successes, trials[0])
    k = np.arange(low, high + 1)
    rest = successes - k
    logs = -gammaln(np.array([k, rest, trials[0] - k, trials[1] - rest]) + 1).sum(axis=0)
    weights = np.exp(logs - logs.max())
    seen = weights[hits[0] - low]
    return min(1.0, float(weights[weights <= seen * (1 + _SLACK)].sum() / weights.sum()))


def holm(p_values: Sequence[float], level: float = 1 - CONFIDENCE) -> list[bool]:
    """Return which of many tests reject, none of them falsely with `level`.

    S. Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6 (1979).
    """
    rejected = [False] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] > level / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


def needed_for_mean(spread: float, gap: float, level: float) -> int:
    """Return how many cases tell a mean from one `gap` away, one-sided, with power `POWER`.

    ((z of the level + z of the power) * standard deviation / gap) squared; Cohen, Statistical
    power analysis for the behavioral sciences (1988), 2.
    """
    z = float(ndtri(1 - level) + ndtri(POWER))
    return ceil((z * spread / gap) ** 2)


def needed_for_rare(share: float) -> int:
    """Return how many cases show one that `share` of all are like, with 95 %.

    (1 - share) ** n <= 0.05: the rule of three, Hanley and Lippman-Hand, JAMA 249 (1983).
    """
    return ceil(log(1 - CONFIDENCE) / log(1 - share))
