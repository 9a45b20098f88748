"""Percentiles, shares and means, with the intervals they lie in.

Percentiles are exact, by the inverted empirical distribution ("nearest rank"): the smallest value x
with at least p·n of the n values ≤ x (Hyndman and Fan's type 1; numpy's `inverted_cdf`). None is
interpolated and none comes out of a bucket. Their intervals are order statistics and assume nothing
about the values' shape: the number of values below the true percentile is binomial(n, p), so ranks
l < u with P(l ≤ B < u) ≥ confidence bracket it (David and Nagaraja, *Order Statistics*, 7.1).
Requests of one run share a machine and are not independent: such an interval is about these
requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, expm1, floor, hypot, log, sqrt
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, betaincinv, ndtr, ndtri

CONFIDENCE = 0.95
DRAWS = 2_000
DRAWN_AT_ONCE = 1 << 20
_SEED = 0
_ROUNDING = 1e-9
_ALIKE = 10
"""Conversations of each kind from which drawing how often a kind comes is quicker."""
# Further from the middle a binomial has less than 1e-15 of its weight.
DEVIATIONS = 9.0
FEWEST_CONVERSATIONS = 30


class RatioEstimate(msgspec.Struct, frozen=True):
    """A candidate's figure over the control's, and the interval it lies in."""

    value: float
    low: float
    high: float


class Sample(NamedTuple):
    """Values above 0, and the conversation of each, numbered from 0."""

    values: NDArray[np.float64]
    conversations: NDArray[np.int64]


class PercentileEstimate(msgspec.Struct, frozen=True):
    """One percentile; an end of its interval is None where too few values bound it."""

    p: float
    value: float
    low: float | None
    high: float | None


def percentile(ordered: Sequence[float], p: float) -> float:
    """Return percentile `p` in (0, 1] of values in ascending order; there must be at least one."""
    return ordered[percentile_rank(len(ordered), p) - 1]


def percentile_rank(n: int, p: float) -> int:
    """Return which of `n` values in ascending order, from 1, percentile `p` in (0, 1] is."""
    # 0.07 * 100 is 7.000000000000001 in floating point, and the rank is 7.
    return min(max(ceil(n * p - _ROUNDING), 1), n)


def percentile_with_interval(ordered: Sequence[float], p: float) -> PercentileEstimate:
    """Return percentile `p` in (0, 1) of values in ascending order, with its interval."""
    low, high = interval_ranks(len(ordered), p)
    return PercentileEstimate(
        p,
        percentile(ordered, p),
        None if low is None else ordered[low - 1],
        None if high is None else ordered[high - 1],
    )


def percentiles(values: Iterable[float], ps: Iterable[float]) -> tuple[PercentileEstimate, ...]:
    """Return percentiles of values in any order; none when there are no values."""
    ordered = sorted(values)
    return tuple(percentile_with_interval(ordered, p) for p in ps) if ordered else ()


def interval_ranks(n: int, p: float) -> tuple[int | None, int | None]:
    """Return the ranks (from 1) that bracket percentile `p`, None where no rank reaches that far.

    Each side may miss with half of 1 - `CONFIDENCE`.
    """
    tail = (1 - CONFIDENCE) / 2
    middle, spread = n * p, DEVIATIONS * sqrt(n * p * (1 - p)) + DEVIATIONS
    start = max(floor(middle - spread), 0)
    below = bdtr(np.arange(start, min(ceil(middle + spread), n) + 1), n, p)
    # Low rank l misses when fewer than l values lie below: P(B ≤ l - 1) must stay within the tail.
    low = start + int(np.count_nonzero(below <= tail))
    # High rank u misses when at least u values lie below: P(B ≥ u) = 1 - P(B ≤ u - 1).
    high = start + int(np.count_nonzero(1 - below > tail)) + 1
    return (low if low >= 1 else None), (high if high <= n else None)


def share_interval(hits: float, trials: float) -> tuple[float, float]:
    """Return the interval of one share: E. B. Wilson, JASA 22 (1927)."""
    z = float(ndtri((1 + CONFIDENCE) / 2))
    share = hits / trials
    centre = share + z * z / (2 * trials)
    spread = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def exact_share_interval(hits: int, trials: int) -> tuple[float, float]:
    """Return the exact 95 % interval of one share, of at least one trial.

    C. J. Clopper and E. S. Pearson, Biometrika 26 (1934): it never misses more often than it says,
    also of few trials, and agrees with `evidence.tests.binomial`.
    """
    tail = (1 - CONFIDENCE) / 2
    low = float(betaincinv(hits, trials - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, trials - hits, 1 - tail)) if hits < trials else 1.0
    return low, high


def share_at_most(cases: int) -> float:
    """Return the 95 % upper bound of a share of which none of at least one case was.

    The share at which (1 - share) ** cases is 0.05, exact where the cases are independent: the end
    of Clopper and Pearson's one-sided interval (Biometrika 26, 1934), about 3 / cases. The rule of
    three, Hanley and Lippman-Hand, JAMA 249 (1983); the inverse of `needed_for_rare`.
    """
    return -expm1(log(1 - CONFIDENCE) / cases)


def difference_interval(
    hits: tuple[float, float], trials: tuple[float, float]
) -> tuple[float, float]:
    """Return the interval of the second share minus the first.

    Counts may be effective ones, divided by `design_effect`.

    R. G. Newcombe, Interval estimation for the difference between independent proportions,
    Statistics in Medicine 17 (1998), method 10: from the Wilson intervals of both shares.
    """
    first, second = hits[0] / trials[0], hits[1] / trials[1]
    (low1, high1), (low2, high2) = map(share_interval, hits, trials)
    apart = second - first
    return (
        apart - hypot(second - low2, high1 - first),
        apart + hypot(high2 - second, first - low1),
    )


def design_effect(sample: Sample) -> float:
    """Return how many times less a share is known because whole conversations resemble each other.

    At least 1, for values of 0 and 1. J. N. K. Rao and A. J. Scott, A simple method for the
    analysis of clustered binary data, Biometrics 48 (1992).
    """
    trials = np.bincount(sample.conversations).astype(float)
    hits = np.bincount(sample.conversations, weights=sample.values)
    m, n = np.count_nonzero(trials), trials.sum()
    share = hits.sum() / n
    if m <= 1 or not 0 < share < 1:
        return 1.0
    spread = m / (m - 1) * float(((hits - share * trials) ** 2).sum()) / n**2
    return max(1.0, float(spread / (share * (1 - share) / n)))


def mean_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % interval of a mean by the seeded BCa bootstrap over at least one value.

    B. Efron, Better bootstrap confidence intervals, JASA 82 (1987). The draws are taken in rows
    that fit into memory, which scipy's `bootstrap` does not allow for.
    """
    mean, drawn = float(values.mean()), _drawn_means(values)
    below = float(np.mean(drawn < mean) + np.mean(drawn <= mean)) / 2
    bias = ndtri(min(max(below, 1 / DRAWS), 1 - 1 / DRAWS))
    apart = values - mean
    spread = float((apart**2).sum()) ** 1.5
    skew = float((apart**3).sum()) / (6 * spread) if spread else 0.0
    z = bias + ndtri(np.array([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]))
    low, high = np.quantile(drawn, ndtr(bias + z / (1 - skew * z)))
    return float(low), float(high)


def _drawn_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    random, n = np.random.default_rng(_SEED), len(values)
    rows = max(1, min(DRAWS, DRAWN_AT_ONCE // n))
    sizes = [min(rows, DRAWS - start) for start in range(0, DRAWS, rows)]
    means = [values[random.integers(n, size=(size, n))].mean(axis=1) for size in sizes]
    return np.concatenate(means)


def percentile_ratio(control: Sample, candidate: Sample, p: float) -> RatioEstimate | None:
    """Return the candidate's percentile over the control's, by the seeded clustered bootstrap.

    Requests of a conversation resemble each other, so whole conversations are drawn (C. A. Field
    and A. H. Welsh, Bootstrapping clustered data, JRSS B 69, 2007), `DRAWS` times on each side; the
    interval is that of the drawn ratios' percentiles. None where too few values bound the
    percentile, or under `FEWEST_CONVERSATIONS` on a side.
    """
    random = np.random.default_rng(_SEED)
    drawn = []
    for side in (control, candidate):
        clusters = len(np.unique(side.conversations))
        if clusters < FEWEST_CONVERSATIONS or None in interval_ranks(len(side.values), p):
            return None
        drawn.append(_drawn_percentiles(side, p, random))
    low, high = np.quantile(
        drawn[1] / drawn[0], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], method="inverted_cdf"
    )
    first, second = (
        np.quantile(side.values, p, method="inverted_cdf") for side in (control, candidate)
    )
    return RatioEstimate(float(second / first), float(low), float(high))


def mean_ratio(control: Sample, candidate: Sample) -> RatioEstimate | None:
    """Return the candidate's mean over the control's, by the seeded clustered bootstrap.

    None under `FEWEST_CONVERSATIONS` on a side, or where the control's mean may be 0.
    """
    random = np.random.default_rng(_SEED)
    drawn, means = [], []
    for side in (control, candidate):
        counts = np.bincount(side.conversations).astype(float)
        sums = np.bincount(side.conversations, weights=side.values).astype(float)
        if len(counts) < FEWEST_CONVERSATIONS:
            return None
        drawn.append(_drawn_mean_of(sums, counts, random))
        means.append(float(side.values.mean()))
    if not drawn[0].all():
        return None
    low, high = np.quantile(drawn[1] / drawn[0], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return RatioEstimate(means[1] / means[0], float(low), float(high))


def _drawn_mean_of(
    sums: NDArray[np.float64], counts: NDArray[np.float64], random: np.random.Generator
) -> NDArray[np.float64]:
    """Draw whole conversations, with their sums and counts of values; return each draw's mean."""
    clusters = len(counts)
    kinds, many = np.unique(np.stack([sums, counts]), axis=1, return_counts=True)
    if len(many) <= min(clusters // _ALIKE, DRAWN_AT_ONCE // DRAWS):
        # How often a draw has conversations of each kind is multinomial.
        total, of = kinds @ random.multinomial(clusters, many / clusters, size=DRAWS).T
        return np.asarray(total / of)
    rows = max(1, min(DRAWS, DRAWN_AT_ONCE // clusters))
    found = []
    for start in range(0, DRAWS, rows):
        picks = random.integers(clusters, size=(min(rows, DRAWS - start), clusters))
        found.append(sums[picks].sum(axis=1) / counts[picks].sum(axis=1))
    return np.concatenate(found)


def _drawn_percentiles(
    sample: Sample, p: float, random: np.random.Generator
) -> NDArray[np.float64]:
    order = np.argsort(sample.values)
    values, owners = sample.values[order], sample.conversations[order]
    clusters = int(owners.max()) + 1
    if np.bincount(owners).max() == 1:
        # The k-th smallest of n uniform draws is Beta(k, n - k + 1): David and Nagaraja, 2.1. So is
        # the place of a draw's percentile, with nothing drawn but that.
        rank = percentile_rank(len(values), p)
        places = random.beta(rank, len(values) - rank + 1, size=DRAWS) * len(values)
        return values[places.astype(np.int64)]
    rows = max(1, min(DRAWS, DRAWN_AT_ONCE // len(values)))
    found = []
    for start in range(0, DRAWS, rows):
        size = min(rows, DRAWS - start)
        picks = random.integers(clusters, size=(size, clusters))
        picks += clusters * np.arange(size)[:, None]
        weights = np.bincount(picks.ravel(), minlength=size * clusters).reshape(size, clusters)
        below = np.cumsum(weights[:, owners], axis=1)
        reached = below >= below[:, -1:] * p - _ROUNDING
        found.append(values[reached.argmax(axis=1)])
    return np.concatenate(found)
