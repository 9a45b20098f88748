"""Chance: the tests and intervals, held to published numbers and to their definitions."""

from __future__ import annotations

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence import difference_interval, fisher, holm, share_interval


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


def test_holm_steps_down_and_stops() -> None:
    """The smallest at a third of the level, the next at half; then no more."""
    assert holm([0.01, 0.02, 0.9]) == [True, True, False]
    assert holm([0.02, 0.02, 0.02]) == [False, False, False]
    assert holm([]) == []
