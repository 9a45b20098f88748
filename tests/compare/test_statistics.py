"""Intervals and evidence: against scipy, against all draws there are, and on drawn rollouts."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from compare.rollout import statistics
from compare.rollout.statistics import Interval, Sample
from tests.compare.drawn import Drawn


def sample(values: list[float], each: int = 1) -> Sample:
    """Return values of units of their own, each of which is there several times."""
    units = np.repeat(np.arange(len(values)), each).astype(np.intp)
    return Sample(np.repeat(np.array(values, float), each), units)


def level(count: int) -> float:
    """Return the two-sided level at which a normal quantile is Student's for so many units."""
    return float(1 - 2 * stats.norm.sf(stats.t.ppf(statistics.CONFIDENCE, count - 1)))


@given(st.lists(st.booleans(), min_size=2, max_size=300))
def test_the_rate_of_independent_values_is_wilsons(failed: list[bool]) -> None:
    """With Student's quantile in the place of the normal one."""
    found = statistics.rate(sample(list(map(float, failed))))
    test = stats.binomtest(sum(failed), len(failed))
    expected = test.proportion_ci(level(len(failed)), "wilson")
    assert found == pytest.approx((sum(failed) / len(failed), *expected), abs=1e-9)


@given(st.lists(st.integers(0, 500), min_size=2, max_size=300), st.sampled_from([0.5, 0.9, 0.95]))
def test_the_percentile_of_independent_values_is_scipys(values: list[int], share: float) -> None:
    """Between the same order statistics; without one, without a limit."""
    found = statistics.percentile(sample(list(map(float, values))), share)
    test = stats.quantile_test(values, p=share)
    expected: Any = test.confidence_interval(level(len(values)))
    assert found.estimate == np.quantile(values, share, method="inverted_cdf")
    for limit, other in ((found.low, expected.low), (found.high, expected.high)):
        assert limit == other or (math.isinf(limit) and math.isnan(other))


def test_the_difference_of_rates_is_newcombes() -> None:
    """His example (a) of 1998: 56 of 70 and 48 of 80, by method 10."""

    def wilson(count: int, of: int) -> Interval:
        limits = stats.binomtest(count, of).proportion_ci(0.95, "wilson")
        return Interval(count / of, limits.low, limits.high)

    found = statistics.difference(wilson(48, 80), wilson(56, 70))
    assert found == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


@given(st.lists(st.booleans(), min_size=3, max_size=60), st.integers(2, 9))
def test_values_of_one_unit_that_are_equal_weigh_as_one(failed: list[bool], each: int) -> None:
    """Their number is that of the units, but for the degree of freedom."""
    size, z = statistics.independent(sample(list(map(float, failed)), each))
    units, values = len(failed), len(failed) * each
    assert z == stats.t.ppf(statistics.CONFIDENCE, units - 1)
    if 0 < sum(failed) < units:
        assert size == pytest.approx((units - 1) * values / (values - 1))


@settings(max_examples=40)
@given(
    messages=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30),
    share=st.sampled_from([0.01, 0.05, 0.3, 0.5, 0.9]),
)
def test_evidence_expects_one_at_most_whatever_units_do(
    messages: list[tuple[int, bool]], share: float
) -> None:
    """Over all draws of six units it expects just the weighings that were made, each as 1."""
    units = np.array([unit for unit, _ in messages], np.intp)
    failed = np.array([one for _, one in messages], bool)
    expected = 0.0
    for draw in itertools.product([False, True], repeat=6):
        chance = math.prod(share if one else 1 - share for one in draw)
        graph = np.array(draw)[units] if len(units) else np.zeros(0, bool)
        expected += chance * statistics.evidence(failed, graph, units, share)
    made = sum(
        math.ceil(statistics.FIRST_FAILURES * statistics.GROWTH**place) <= failed.sum()
        for place in range(statistics.WEIGHINGS)
    )
    assert expected == pytest.approx(made / statistics.WEIGHINGS)


@given(st.integers(0, 2**32), st.floats(0.0, 0.3))
@settings(max_examples=20)
def test_evidence_only_grows(seed: int, behind: float) -> None:
    """So its last value is the greatest that any look has seen."""
    drawn = Drawn(exchanges=400, users=40, fails=0.1 + behind, alike=False, crowd=1.0, seed=seed)
    failed, graph, units = drawn.outcomes()
    looks = [
        statistics.evidence(failed[:end], graph[:end], units[:end], 0.5)
        for end in range(0, 401, 50)
    ]
    assert looks == sorted(looks)


EQUAL = {
    "users alike": Drawn(exchanges=2_500, users=500, fails=0.02),
    "users differ strongly": Drawn(exchanges=2_500, users=500, fails=0.05, alike=False),
    "few users write most": Drawn(exchanges=2_500, users=300, fails=0.05, crowd=0.8),
    "both": Drawn(exchanges=2_500, users=300, fails=0.05, alike=False, crowd=0.8),
    "both, a small share": Drawn(
        exchanges=2_500, users=300, fails=0.05, alike=False, crowd=0.8, share=0.05
    ),
}


@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize(
    ("rollouts", "looks"), [(100, 2), pytest.param(2_000, 50, marks=pytest.mark.nightly)]
)
def test_equal_stacks_are_seldom_rolled_back(name: str, rollouts: int, looks: int) -> None:
    """At most 1 %, however often it is looked: 5 % in a plan of five steps."""
    rolled_back = 0
    for seed in range(rollouts):
        drawn = replace(EQUAL[name], seed=seed)
        failed, graph, units = drawn.outcomes()
        ends = np.linspace(0, len(failed), looks + 1, dtype=int)[1:]
        rolled_back += any(
            statistics.evidence(failed[:end], graph[:end], units[:end], drawn.share)
            >= 1 / statistics.ALPHA
            for end in ends
        )
    assert rolled_back <= 2 * statistics.ALPHA * rollouts


@pytest.mark.parametrize(
    ("share", "more", "exchanges", "power"),
    [
        (0.5, 0.01, 20_000, 0.9),
        (0.5, 0.02, 6_000, 0.9),
        (0.5, 0.05, 2_000, 0.9),
        (0.05, 0.02, 20_000, 0.6),
        (0.05, 0.05, 10_000, 0.9),
        (0.05, 0.2, 2_000, 0.9),
    ],
)
def test_a_graph_that_fails_more_is_rolled_back(
    share: float, more: float, exchanges: int, power: float
) -> None:
    """The power that docs/rollout.md states, where legacy fails in 0.5 %."""
    found = 0
    for seed in range(60):
        drawn = Drawn(exchanges=exchanges, users=exchanges // 5, share=share, seed=seed)
        failed, graph, units = drawn.outcomes()
        failed |= graph & (np.random.default_rng([seed, 2]).random(exchanges) < more)
        found += statistics.evidence(failed, graph, units, share) >= 1 / statistics.ALPHA
    assert found / 60 >= power


@pytest.mark.nightly
@pytest.mark.parametrize("name", EQUAL)
def test_intervals_of_units_cover_what_is_true(name: str) -> None:
    """Of differences that are 0, each limit excludes 5 %, up to chance and 8 %."""
    beyond = {"rate": 0, "P95": 0}
    for seed in range(1_000):
        failed, graph, units = replace(EQUAL[name], seed=seed, share=0.5).outcomes()
        rng = np.random.default_rng([seed, 3])
        own = rng.lognormal(0, 0.5, int(units.max()) + 1)[units]
        times = rng.lognormal(6, 0.4, len(units)) * own
        arms = (~graph, graph)
        rates = [statistics.rate(Sample(failed[one].astype(float), units[one])) for one in arms]
        tails = [statistics.percentile(Sample(times[one], units[one])) for one in arms]
        beyond["rate"] += statistics.difference(*rates).high < 0
        beyond["P95"] += statistics.difference(*tails).high < 0
    assert max(beyond.values()) <= 80
