"""Intervals for rates and percentiles by unit, and evidence of failures that any look may read.

Values of one unit, a user or a conversation, depend on each other: what counts is how many
independent values weigh as much.
"""

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE: Final = 0.95
"""That of each limit of an interval, one-sided."""
Z: Final = float(stats.norm.ppf(CONFIDENCE))
PERCENTILE: Final = 0.95
ALPHA: Final = 0.01
"""The probability of rolling back an equal stack, whenever and however often it is looked."""

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Codes = NDArray[np.intp]


class Sample(NamedTuple):
    """Values of one stack, and the number of the unit that each one is of."""

    data: Floats
    units: Codes


class Interval(NamedTuple):
    """An estimate between its limits."""

    estimate: float
    low: float
    high: float


def independent(sample: Sample) -> tuple[float, float]:
    """Return how many independent values weigh as much as 0s and 1s by unit, and the quantile z.

    The number is the values' variance over that of their mean, by the jackknife over units (Rust
    and Rao 1996, Statistical Methods in Medical Research 5, 283-310), and theirs at most. z is
    Student's quantile for as many units of one size as weigh alike (Kish 1965, section 11.7):
    infinite for one unit.
    """
    count = len(sample.data)
    if not count:
        return 0.0, math.inf
    _, codes = np.unique(sample.units, return_inverse=True)
    mean, sizes = float(sample.data.mean()), np.bincount(codes)
    units, freedom = len(sizes), count**2 / float(sizes @ sizes) - 1
    z = float(stats.t.ppf(CONFIDENCE, freedom)) if units > 1 else math.inf
    if units == 1 or mean in {0.0, 1.0}:
        return float(count), z
    moved = np.bincount(codes, sample.data - mean) / (count - sizes)
    variance = float(moved @ moved) * (units - 1) / units
    return min(float(sample.data.var(ddof=1)) / variance, float(count)), z


def rate(sample: Sample) -> Interval:
    """Return the rate of 0s and 1s with its limits by Wilson's score."""
    size, z = independent(sample)
    estimate = float(sample.data.mean()) if size else math.nan
    if math.isinf(z):
        return Interval(estimate, 0.0, 1.0)
    centre = (estimate + z * z / (2 * size)) / (1 + z * z / size)
    spread = math.sqrt(estimate * (1 - estimate) / size + z * z / (4 * size * size))
    half = z * spread / (1 + z * z / size)
    return Interval(estimate, max(centre - half, 0.0), min(centre + half, 1.0))


def percentile(sample: Sample, share: float = PERCENTILE) -> Interval:
    """Return the smallest value that a share of values does not exceed, between two order ones.

    Their ranks are the binomial's (Conover 1999, section 3.2), for as many independent values
    (Woodruff 1952, JASA 47, 635-646); where there are too few, a limit is infinite.
    """
    values, count = np.sort(sample.data), len(sample.data)
    estimate = float(values[max(math.ceil(share * count) - 1, 0)]) if count else math.nan
    size, z = independent(Sample((sample.data <= estimate).astype(np.float64), sample.units))
    if math.isinf(z):
        return Interval(estimate, -math.inf, math.inf)
    whole, tail = max(math.floor(size + 1e-6), 1), float(stats.norm.sf(z))
    low, high = (float(stats.binom.ppf(one, whole, share)) for one in (tail, 1 - tail))
    first, last = math.floor(low / whole * count), math.ceil((high + 1) / whole * count)
    return Interval(
        estimate,
        float(values[first - 1]) if first >= 1 else -math.inf,
        float(values[last - 1]) if last <= count else math.inf,
    )


def difference(legacy: Interval, graph: Interval) -> Interval:
    """Return graph's estimate less legacy's, with limits recovered from those of both.

    Newcombe 1998 (Statistics in Medicine 17, 873-890), method 10; for other estimates than rates
    Zou and Donner 2008 (ibid. 27, 1693-1702).
    """
    estimate = graph.estimate - legacy.estimate
    low = math.hypot(graph.estimate - graph.low, legacy.high - legacy.estimate)
    high = math.hypot(graph.high - graph.estimate, legacy.estimate - legacy.low)
    return Interval(estimate, estimate - low, estimate + high)


def skewed(drawn: int, units: int, share: float) -> float:
    """Return the p-value of so many of the units being drawn by a share: the exact binomial."""
    return float(stats.binomtest(drawn, units, share).pvalue)


WEIGHINGS, FIRST_FAILURES, GROWTH = 20, 3, 1.5
"""Evidence is weighed when 3 exchanges have failed, then at half as many again: up to 6 650."""
_RATIOS: Final = np.array([1.1, 1.35, 2.0, 4.5, 20.0])
"""What graph may multiply failures by."""


def evidence(failed: Bools, in_graph: Bools, units: Codes, share: float) -> float:
    """Return the e-value of graph failing more; the values are in order of time.

    As long as both stacks fail alike, a unit is in graph with probability `share`, whatever its
    exchanges came to. If graph multiplies failures by r, a unit with y failures among n is there
    with odds multiplied by r^y exp(-c n) (Bayes, Poisson): the product over units of the one
    probability over the other of where they are is an e-value, for any users, failures and
    dependence between messages. It is averaged over ratios r, and over 20 weighings at growing
    numbers of failures, of which those to come count 0: so it only grows with time, expects 1 at
    most, and ever reaches 1 / alpha with probability alpha at most (Markov's inequality; averages
    of e-values: Vovk and Wang 2021, Annals of Statistics 49, 1736-1754).
    """
    total = np.cumsum(failed)
    due = np.ceil(FIRST_FAILURES * GROWTH ** np.arange(WEIGHINGS))
    ends = np.searchsorted(total, due[due <= total[-1]]) + 1 if len(total) else []
    values = (_e_value(failed[:end], in_graph[:end], units[:end], share) for end in ends)
    return sum(values) / WEIGHINGS


def _e_value(failed: Bools, in_graph: Bools, units: Codes, share: float) -> float:
    present, first = np.unique(units, return_index=True)
    failures = np.bincount(units, failed)[present][:, None]
    expected = np.bincount(units)[present][:, None] * failed.mean()
    odds = failures * np.log(_RATIOS) - expected * (_RATIOS - 1) / (1 - share + share * _RATIOS)
    logs = odds * in_graph[first][:, None] - np.logaddexp(
        math.log(share) + odds, math.log1p(-share)
    )
    return float(np.exp(np.minimum(logs.sum(axis=0), 700.0)).mean())
