"""Exact percentiles over raw values, with intervals that assume nothing about their shape.

Method: the inverted empirical distribution, "nearest rank": the smallest value x with at least
p·n of the n values ≤ x (Hyndman and Fan's type 1; numpy's `inverted_cdf`). Every percentile is
a value somebody measured; none is interpolated and none comes out of a bucket.

Interval: order statistics. The number of values below the true percentile is binomial(n, p), so
ranks l < u with P(l ≤ B < u) ≥ confidence bracket it (David and Nagaraja, *Order Statistics*,
7.1). Requests of one run share a machine and are not independent: the interval is about these
requests; comparing stacks goes by runs (`comparison.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, exp, floor, lgamma, log, log1p, sqrt

import msgspec

METHOD = "inverted_cdf (nearest rank), exact, over raw rows"
INTERVAL = "order statistics (binomial)"
CONFIDENCE = 0.95
# Further from the middle a binomial has less than 1e-15 of its weight.
DEVIATIONS = 9.0


class Percentile(msgspec.Struct, frozen=True):
    """One percentile; an end of its interval is None where there are too few values to tell."""

    p: float
    value: float
    low: float | None
    high: float | None


def rank(n: int, p: float) -> int:
    """Rank (from 1) of percentile `p` in (0, 1] among `n` values."""
    # 0.95 * 20 is 19.000000000000004 on paper's side of the decimal: do not fall over it.
    return min(max(ceil(n * p - 1e-9), 1), n)


def percentile(ordered: Sequence[float], p: float) -> float:
    """Percentile `p` in (0, 1] of values in ascending order; there must be at least one."""
    return ordered[rank(len(ordered), p) - 1]


def percentile_with_interval(
    ordered: Sequence[float], p: float, confidence: float = CONFIDENCE
) -> Percentile:
    """Percentile `p` in (0, 1) of values in ascending order, with its interval."""
    low, high = interval_ranks(len(ordered), p, confidence)
    return Percentile(
        p,
        percentile(ordered, p),
        None if low is None else ordered[low - 1],
        None if high is None else ordered[high - 1],
    )


def percentiles(
    values: Iterable[float], ps: Iterable[float], confidence: float = CONFIDENCE
) -> tuple[Percentile, ...]:
    """Percentiles of values in any order; none when there are no values."""
    ordered = sorted(values)
    if not ordered:
        return ()
    return tuple(percentile_with_interval(ordered, p, confidence) for p in ps)


def interval_ranks(n: int, p: float, confidence: float) -> tuple[int | None, int | None]:
    """Ranks (from 1) that bracket percentile `p`, None where no rank reaches that far.

    Each side may miss with half of 1 - `confidence`.
    """
    tail = (1 - confidence) / 2
    start, cumulative = _binomial(n, p)
    # Low rank l misses when fewer than l values lie below: P(B ≤ l - 1) must stay within the tail.
    within = sum(value <= tail for value in cumulative)
    low = start + within
    # High rank u misses when at least u values lie below: P(B ≥ u) = 1 - P(B ≤ u - 1).
    short = sum(1 - value > tail for value in cumulative)
    high = start + short + 1
    return (low if low >= 1 else None), (high if high <= n else None)


def _binomial(n: int, p: float) -> tuple[int, list[float]]:
    """Cumulative distribution of binomial(n, p) over all that has weight: (first k, P(B ≤ k)…)."""
    middle, spread = n * p, DEVIATIONS * sqrt(n * p * (1 - p)) + DEVIATIONS
    first, last = max(floor(middle - spread), 0), min(ceil(middle + spread), n)
    total, cumulative = 0.0, []
    for k in range(first, last + 1):
        total += exp(
            lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(p) + (n - k) * log1p(-p)
        )
        cumulative.append(min(total, 1.0))
    return first, cumulative
