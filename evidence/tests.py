"""Tests: p-values of what chance could give, and many of them together."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, sqrt

import msgspec
import numpy as np
from scipy.special import bdtr, gammaln, stdtr, stdtrit

from evidence.intervals import CONFIDENCE, percentile_with_interval

MISMATCH = 0.001
"""A p-value of `binomial` below which assigned shares are not those that were configured."""
_SLACK = 1e-7
_LARGEST = 700.0
"""Of an exponent; beyond it a float has no room for the result."""


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


def binomial(hits: int, trials: int, share: float) -> float:
    """Return the two-sided p-value of so many hits if each trial hits with `share` in (0, 1).

    Exact: twice the smaller tail (Clopper and Pearson, Biometrika 26, 1934). With what was assigned
    to a stack, of all that was, this is the sample-ratio test: A. Fabijan et al., Diagnosing sample
    ratio mismatch in online controlled experiments, KDD 2019. Count what is drawn: conversations
    where they stay with their stack.
    """
    at_most = float(bdtr(hits, trials, share))
    # P(X ≥ hits) is P(misses ≤ trials - hits): a complement would lose small probabilities.
    at_least = float(bdtr(trials - hits, trials, 1 - share))
    return min(1.0, 2 * min(at_most, at_least))


class PairedRatio(msgspec.Struct, frozen=True):
    """A candidate's values over the control's, pair by pair, with an interval and a p-value.

    An end is None where too few pairs bound it. The p-value is two-sided, of a ratio of 1.
    """

    value: float
    low: float | None
    high: float | None
    p: float


def paired_mean(control: Sequence[float], candidate: Sequence[float]) -> PairedRatio:
    """Return the geometric mean ratio of two or more pairs of values above 0.

    For a few pairs whose values are figures of many requests each: Student's t over the logarithms
    (Biometrika 6, 1908).
    """
    logs = np.log(np.asarray(candidate, float)) - np.log(np.asarray(control, float))
    mean, error = float(logs.mean()), float(logs.std(ddof=1)) / sqrt(len(logs))
    reach = min(float(stdtrit(len(logs) - 1, (1 + CONFIDENCE) / 2)) * error, _LARGEST)
    p = 2 * float(stdtr(len(logs) - 1, -abs(mean / error))) if error else float(not mean)
    return PairedRatio(exp(mean), exp(mean) * exp(-reach), exp(mean) * exp(reach), p)


class PairedDifference(msgspec.Struct, frozen=True):
    """A candidate's values minus the control's, pair by pair, with an interval and a p-value.

    The p-value is two-sided, of no difference.
    """

    value: float
    low: float
    high: float
    p: float


def paired_difference(control: Sequence[float], candidate: Sequence[float]) -> PairedDifference:
    """Return the mean difference of two or more pairs of values, which may be 0: Student's t."""
    apart = np.asarray(candidate, float) - np.asarray(control, float)
    mean, error = float(apart.mean()), float(apart.std(ddof=1)) / sqrt(len(apart))
    reach = float(stdtrit(len(apart) - 1, (1 + CONFIDENCE) / 2)) * error
    p = 2 * float(stdtr(len(apart) - 1, -abs(mean / error))) if error else float(not mean)
    return PairedDifference(mean, mean - reach, mean + reach, p)


def paired_median(control: Sequence[float], candidate: Sequence[float]) -> PairedRatio:
    """Return the median ratio of at least one pair of values above 0.

    The interval is that of order statistics and assumes nothing about the ratios' shape; the
    p-value is the sign test's, which leaves out equal pairs (W. J. Conover, Practical nonparametric
    statistics, 1999, 3.4).
    """
    ratios = np.sort(np.asarray(candidate, float) / np.asarray(control, float))
    up, down = int(np.count_nonzero(ratios > 1)), int(np.count_nonzero(ratios < 1))
    median = percentile_with_interval(ratios.tolist(), 0.5)
    p = binomial(up, up + down, 0.5) if up + down else 1.0
    return PairedRatio(median.value, median.low, median.high, p)


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
