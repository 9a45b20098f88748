"""Percentiles are exact, and their intervals hold what they promise."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence import percentile, percentile_with_interval, percentiles
from evidence.intervals import interval_ranks

VALUES = st.lists(st.floats(0, 1e6), min_size=1, max_size=300)
PS = st.sampled_from([0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0])


@given(VALUES, PS)
def test_percentiles_are_numpys_inverted_cdf(values: list[float], p: float) -> None:
    """Same method, same value, no interpolation."""
    oracle = np.percentile(values, round(p * 100), method="inverted_cdf")
    assert percentile(sorted(values), p) == oracle


@pytest.mark.parametrize("n", [20, 40, 60, 100, 200, 1_000, 100_000])
def test_a_rank_does_not_fall_over_a_rounding_error(n: int) -> None:
    """0.95 · n is a whole number for these n, and P95 is that very rank."""
    assert percentile(range(1, n + 1), 0.95) == n * 95 // 100


def covered(n: int, p: float, low: int | None, high: int | None) -> float:
    """P(low ≤ B < high) for B binomial(n, p), summed term by term."""
    return sum(
        comb(n, k) * p**k * (1 - p) ** (n - k)
        for k in range(low or 0, n + 1 if high is None else high)
    )


@given(st.integers(1, 250), st.sampled_from([0.05, 0.5, 0.9, 0.95, 0.99]))
def test_an_interval_covers_what_it_promises(n: int, p: float) -> None:
    """At least 95 %, and one rank less on either side would not do."""
    low, high = interval_ranks(n, p)
    assert covered(n, p, low, high) >= 0.95 - 1e-9
    if low is not None:
        assert covered(n, p, low + 1, None) < 0.975 + 1e-9
    if high is not None and high > 1:
        assert covered(n, p, None, high - 1) < 0.975 + 1e-9


def test_too_few_values_leave_an_end_open() -> None:
    """Twenty values do not bound P95 from above."""
    found = percentile_with_interval(list(range(20)), 0.95)
    assert found.low is not None
    assert found.high is None


def test_no_values_have_no_percentiles() -> None:
    """No data is no number."""
    assert percentiles([], (0.5, 0.95)) == ()


def test_known_ranks_of_a_median() -> None:
    """With 100 values ranks 40 and 61, as tables of order statistics have it."""
    assert interval_ranks(100, 0.5) == (40, 61)


def test_a_large_sample_is_quick_and_tight() -> None:
    """A hundred thousand rows: ranks a few hundred apart around 95 000."""
    low, high = interval_ranks(100_000, 0.95)
    assert low is not None
    assert high is not None
    assert 94_800 < low < 95_000 < high < 95_200
