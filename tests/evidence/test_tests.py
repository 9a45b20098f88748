"""Tests, held to published numbers and to their definitions."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evidence.tests import MISMATCH, binomial, fisher, holm, paired_mean, paired_median

TIMES = st.lists(st.floats(0.01, 100.0), min_size=2, max_size=60)


def exact(hits: tuple[int, int], trials: tuple[int, int]) -> float:
    """Give Fisher's p-value from the definition, in integers."""
    total = sum(hits)
    ways = [
        comb(trials[0], k) * comb(trials[1], total - k) if 0 <= total - k <= trials[1] else 0
        for k in range(min(total, trials[0]) + 1)
    ]
    return sum(way for way in ways if way <= ways[hits[0]]) / sum(ways)


@given(st.data(), st.integers(1, 40), st.integers(1, 40))
def test_fisher_is_its_definition(data: st.DataObject, first: int, second: int) -> None:
    """Summed in integers it comes out the same."""
    hits = data.draw(st.integers(0, first)), data.draw(st.integers(0, second))
    assert fisher(hits, (first, second)) == pytest.approx(exact(hits, (first, second)))


def test_fisher_gives_the_published_value() -> None:
    """Fisher's tea: 3 of 4 against 1 of 4, p = 0.4857 (Agresti, 3.5.2)."""
    assert fisher((3, 1), (4, 4)) == pytest.approx(0.4857, abs=1e-4)


def test_fisher_holds_for_many() -> None:
    """No overflow at the size of weeks of traffic."""
    assert fisher((100_000, 100_000), (200_000, 200_000)) == pytest.approx(1.0)
    assert fisher((1_000, 2_000), (200_000, 200_000)) < 1e-50


def test_holm_steps_down_and_stops() -> None:
    """The smallest at a third of the level, the next at half; then no more."""
    assert holm([0.01, 0.02, 0.9]) == [True, True, False]
    assert holm([0.02, 0.02, 0.02]) == [False, False, False]
    assert holm([]) == []


@given(st.integers(1, 2_000), st.data(), st.floats(0.01, 0.99))
def test_the_binomial_test_is_scipys_tails_doubled(
    trials: int, data: st.DataObject, share: float
) -> None:
    """At a half, where both tails are alike, it is scipy's two-sided test."""
    hits = data.draw(st.integers(0, trials))
    tails = [
        stats.binomtest(hits, trials, share, alternative=side).pvalue
        for side in ("less", "greater")
    ]
    assert binomial(hits, trials, share) == pytest.approx(min(1.0, 2 * min(tails)), rel=1e-6)
    half = stats.binomtest(hits, trials, 0.5).pvalue
    assert binomial(hits, trials, 0.5) == pytest.approx(half, rel=1e-6)


@pytest.mark.parametrize(
    ("hits", "trials", "p"),
    [
        (10_400, 20_000, 1.59971e-8),
        (10_100, 20_000, 0.159383),
        (480, 1_000, 0.217448),
        (3, 20, 0.00257683),
    ],
)
def test_the_sample_ratio_test_agrees_with_tea_tasting(hits: int, trials: int, p: float) -> None:
    """Values of tea-tasting 1.14.0, `SampleRatio(method="binom")`, at equal shares."""
    assert binomial(hits, trials, 0.5) == pytest.approx(p, rel=1e-4)


def test_a_sample_ratio_of_52_to_48_is_found_in_20_000() -> None:
    """And one of 50.5 to 49.5 is not."""
    assert binomial(10_400, 20_000, 0.5) < MISMATCH < binomial(10_100, 20_000, 0.5)


@pytest.mark.parametrize(
    ("freedom", "t"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (30, 2.042)],
)
def test_students_t_is_that_of_the_tables(freedom: int, t: float) -> None:
    """Two-sided 95 %."""
    logs = np.linspace(-1, 1, freedom + 1)
    found = paired_mean(np.ones(len(logs)).tolist(), np.exp(logs).tolist())
    assert found.high is not None
    assert np.log(found.high) == pytest.approx(t * stats.sem(logs), rel=2e-4)


@given(st.lists(st.tuples(*[st.floats(0.01, 100.0)] * 2), min_size=2, max_size=60))
def test_the_paired_mean_is_scipys_t_test_over_logarithms(pairs: list[tuple[float, float]]) -> None:
    """The same p-value and the same interval."""
    control, candidate = map(list, zip(*pairs, strict=True))
    logs = np.log(candidate) - np.log(control)
    found = paired_mean(control, candidate)
    if np.ptp(logs) < 1e-9:
        return
    oracle = stats.ttest_1samp(logs, 0.0)
    interval = oracle.confidence_interval(0.95)
    assert found.p == pytest.approx(oracle.pvalue, rel=1e-6)
    assert found.low == pytest.approx(np.exp(interval.low), rel=1e-6)
    assert found.high == pytest.approx(np.exp(interval.high), rel=1e-6)


def test_pairs_of_one_ratio_have_no_spread() -> None:
    """The interval is a point, and chance gives no ratio but 1."""
    assert paired_mean([1.0, 2.0], [1.0, 2.0]).p == 1.0
    assert paired_mean([1.0, 2.0], [2.0, 4.0]).p == 0.0
    assert paired_mean([1.0, 2.0], [2.0, 4.0]).high == pytest.approx(2.0)


@given(TIMES, st.data())
def test_the_paired_median_rejects_what_its_interval_excludes(
    control: list[float], data: st.DataObject
) -> None:
    """The order statistics are those at which the sign test turns."""
    size = len(control)
    candidate = data.draw(st.lists(st.floats(0.01, 100.0), min_size=size, max_size=size))
    found = paired_median(control, candidate)
    up = sum(second / first > 1 for first, second in zip(control, candidate, strict=True))
    down = sum(second / first < 1 for first, second in zip(control, candidate, strict=True))
    if up + down == size:
        assert found.p == pytest.approx(stats.binomtest(up, size, 0.5).pvalue)
        outside = (found.low or 0.0) > 1 or (found.high or np.inf) < 1
        assert outside == (found.p <= 0.05)
    assert (found.low or 0.0) <= found.value <= (found.high or np.inf)


def test_equal_pairs_have_no_sign() -> None:
    """Nothing but ties is no evidence."""
    assert paired_median([1.0] * 50, [1.0] * 50).p == 1.0


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_rejects_by_the_adjusted_p_values(p_values: list[float]) -> None:
    """R's `p.adjust(method = "holm")`: the running maximum of (m - rank) times the value."""
    order = np.argsort(p_values, kind="stable")
    adjusted = np.maximum.accumulate(np.sort(p_values) * np.arange(len(p_values), 0, -1))
    away = not len(adjusted) or np.min(np.abs(adjusted - 0.05)) > 1e-9
    expected = dict(zip(order.tolist(), (adjusted <= 0.05).tolist(), strict=True))
    assert not away or holm(p_values) == [expected[i] for i in range(len(p_values))]
