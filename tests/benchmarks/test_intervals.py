"""The bench's own statistics: known answers, and what must hold of any rounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.rows import IntervalEstimate, bootstrap, difference_of_p95, ratio_of_medians

COSTS = st.floats(0.01, 1_000, allow_nan=False)
ROUNDS = st.lists(st.tuples(COSTS, COSTS), min_size=1, max_size=12)


def test_a_ratio_is_that_of_a_middling_round() -> None:
    """Rounds are paired: a busy one doubles both sides and changes nothing."""
    assert ratio_of_medians([(8.0, 2.0), (16.0, 4.0), (100.0, 1.0)]) == 4.0


def test_p95s_are_compared_round_by_round() -> None:
    """A burst in one round does not decide."""
    calm = ([float(n) for n in range(1, 101)], [n + 2.0 for n in range(1, 101)])
    burst = ([1.0] * 100, [500.0] * 100)
    assert difference_of_p95([calm, calm, burst]) == 2.0


@given(ROUNDS)
def test_an_interval_holds_values_of_rounds(rounds: list[tuple[float, float]]) -> None:
    """Its ends are ratios between the least and the largest round, in order."""
    found = bootstrap(rounds, ratio_of_medians, draws=50)
    ratios = [first / second for first, second in rounds]
    assert min(ratios) <= found.low <= found.high <= max(ratios)


@given(ROUNDS)
def test_the_same_rounds_give_the_same_interval(rounds: list[tuple[float, float]]) -> None:
    """The draws have a fixed seed."""
    draw = [bootstrap(rounds, ratio_of_medians, draws=20) for _ in range(2)]
    assert draw[0] == draw[1]


def test_rounds_that_agree_leave_nothing_open() -> None:
    """The interval is the value."""
    found = bootstrap([(4.0, 1.0)] * 5, ratio_of_medians)
    assert found == IntervalEstimate(4.0, 4.0, 4.0)
    assert str(found) == "4 [4, 4]"
