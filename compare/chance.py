"""Chance: whether two shares differ by more than chance explains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

CONFIDENCE = 0.95
METHOD = (
    "Fisher's exact test, two-sided; Newcombe's score interval of the difference of shares, 95 %; "
    "over all causes in both reports by Holm's method, 5 %"
)
_SLACK = 1e-7


def fisher(hits: tuple[int, int], trials: tuple[int, int]) -> float:
    """Give the two-sided p-value of two shares being one: Fisher's exact test.

    Sums the hypergeometric probabilities that are no greater than that of what was seen, ties
    within 1e-7 included, as R's `fisher.test` does (Agresti, Categorical Data Analysis, 3.5.1).
    """
    total, successes = sum(trials), sum(hits)
    low, high = max(0, successes - trials[1]), min(successes, trials[0])
    if low == high:
        return 1.0
    k = np.arange(low, high)
    steps = np.log(successes - k) + np.log(trials[0] - k)
    steps -= np.log(k + 1) + np.log(total - trials[0] - successes + k + 1)
    logs = np.concatenate(([0.0], np.cumsum(steps)))
    weights = np.exp(logs - logs.max())
    seen = weights[hits[0] - low]
    return min(1.0, float(weights[weights <= seen * (1 + _SLACK)].sum() / weights.sum()))


def difference(hits: tuple[int, int], trials: tuple[int, int]) -> tuple[float, float]:
    """Give the interval of the second share minus the first.

    R. G. Newcombe, Interval estimation for the difference between independent proportions,
    Statistics in Medicine 17 (1998), method 10: from the Wilson intervals of both shares.
    """
    first, second = hits[0] / trials[0], hits[1] / trials[1]
    (low1, high1), (low2, high2) = (wilson(h, n) for h, n in zip(hits, trials, strict=True))
    apart = second - first
    return (
        apart - math.hypot(second - low2, high1 - first),
        apart + math.hypot(high2 - second, first - low1),
    )


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """Give the interval of one share: E. B. Wilson, JASA 22 (1927)."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    share = hits / trials
    centre = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def holm(p_values: Sequence[float], level: float = 1 - CONFIDENCE) -> list[bool]:
    """Say which of many tests reject, none of them falsely with `level`.

    S. Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6 (1979).
    """
    rejected = [False] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] > level / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected
