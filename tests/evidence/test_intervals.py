"""Percentiles are exact, and their intervals hold what they promise."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence.intervals import (
    Sample,
    difference_interval,
    interval_ranks,
    percentile,
    percentile_ratio,
    percentile_with_interval,
    percentiles,
    share_at_most,
    share_interval,
)
from evidence.power import needed_for_rare

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


def test_newcombe_gives_the_published_interval() -> None:
    """56 of 70 against 48 of 80: 0.0524 to 0.3339 (Newcombe 1998, table II, method 10)."""
    assert difference_interval((48, 56), (80, 70)) == pytest.approx((0.0524, 0.3339), abs=1e-4)


@given(st.integers(1, 500), st.data())
def test_a_share_is_within_its_interval(trials: int, data: st.DataObject) -> None:
    """At the ends too."""
    hits = data.draw(st.integers(0, trials))
    low, high = share_interval(hits, trials)
    assert 0 <= low <= hits / trials + 1e-12
    assert hits / trials - 1e-12 <= high <= 1


@pytest.mark.parametrize(
    ("cases", "bound"), [(1, 0.95), (10, 0.2589), (100, 0.0295), (300, 0.00994)]
)
def test_the_rule_of_three_gives_the_exact_bounds(cases: int, bound: float) -> None:
    """Clopper and Pearson's end of 0 in n; 3 / n is near it from 30 on."""
    assert share_at_most(cases) == pytest.approx(bound, rel=2e-3)
    assert cases < 30 or share_at_most(cases) == pytest.approx(3 / cases, rel=0.05)


@given(st.integers(1, 10**7))
def test_so_many_cases_are_needed_for_their_bound(cases: int) -> None:
    """One is the inverse of the other, but for what rounding adds."""
    assert needed_for_rare(share_at_most(cases)) in {cases, cases + 1}


def sample(values: list[float], size: int = 1) -> Sample:
    """Return values of conversations of `size` requests each."""
    return Sample(np.array(values), np.arange(len(values)) // size)


def test_a_ratio_lies_in_its_interval_and_scales_with_the_candidate() -> None:
    """Twice as slow is twice the ratio, at both ends too."""
    values = np.exp(0.6 * np.random.default_rng(3).standard_normal((2, 400)))
    found = percentile_ratio(sample(values[0].tolist()), sample(values[1].tolist()), 0.95)
    twice = percentile_ratio(sample(values[0].tolist()), sample((2 * values[1]).tolist()), 0.95)
    assert found is not None
    assert twice is not None
    assert found.low < found.value < found.high
    assert (twice.value, twice.low, twice.high) == pytest.approx(
        (2 * found.value, 2 * found.low, 2 * found.high)
    )


def test_conversations_whose_requests_are_equal_count_once() -> None:
    """The interval is that of one request a conversation, not of ten times as many."""
    random = np.random.default_rng(4)
    one, other = np.exp(0.6 * random.standard_normal((2, 300)))

    def width(size: int, *, clustered: bool) -> float:
        sides = (np.repeat(values, size).tolist() for values in (one, other))
        first, second = (sample(side, size if clustered else 1) for side in sides)
        found = percentile_ratio(first, second, 0.9)
        assert found is not None
        return found.high / found.low

    assert width(10, clustered=True) == pytest.approx(width(1, clustered=True), rel=0.15)
    assert width(10, clustered=False) < 1 + (width(10, clustered=True) - 1) / 2


def test_too_few_conversations_or_values_bound_no_ratio() -> None:
    """29 conversations, or 50 values for P99."""
    enough = sample([float(value) for value in range(1, 301)])
    assert percentile_ratio(enough, sample([1.0] * 290, 10), 0.5) is None
    assert percentile_ratio(enough, enough, 0.5) is not None
    assert percentile_ratio(enough, sample([1.0] * 50), 0.99) is None
    assert percentile_ratio(enough, sample([]), 0.5) is None
