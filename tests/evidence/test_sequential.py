"""E-processes: their mean is at most 1 where the candidate is no worse, and they see what is."""

from __future__ import annotations

from itertools import combinations
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import binom

from evidence.sequential import (
    ALARM,
    TurnValues,
    evidence_by_turn,
    failure_evidence,
    percentile_evidence,
    rate_evidence,
)

SAMPLES = st.lists(st.integers(1, 12).map(float), min_size=1, max_size=30)
PS = st.sampled_from([0.5, 0.9, 0.95])


def ordered(values: list[float]) -> NDArray[np.float64]:
    """Return them in ascending order."""
    return np.sort(np.array(values))


def by_definition(control: list[float], candidate: list[float], p: float, margin: float) -> float:
    """Return the smallest product of both bets over all thresholds at which it can change."""
    shown = [*control, *(value / (1 + margin) for value in candidate)]
    between = [value + step for value in shown for step in (-0.01, 0.0, 0.01)]
    steps, stakes = np.array([0.05, 0.15, 0.35, 0.8, 2.0]), [0.1, 0.3, 0.3, 0.15, 0.15]

    def bet(signed: NDArray[np.float64], hits: int, trials: int) -> float:
        odds = (1 - p) / p * np.exp(signed)
        share = odds / (1 + odds)
        ratio = hits * np.log(share / (1 - p)) + (trials - hits) * np.log((1 - share) / p)
        return float(logsumexp(ratio, b=stakes))

    return min(
        bet(-steps, sum(value >= at for value in control), len(control))
        + bet(steps, sum(value > at * (1 + margin) for value in candidate), len(candidate))
        for at in between
    )


@given(SAMPLES, SAMPLES, PS, st.sampled_from([0.0, 0.25]))
def test_percentile_evidence_is_its_definition(
    control: list[float], candidate: list[float], p: float, margin: float
) -> None:
    """Ties and unequal sizes included."""
    found = percentile_evidence(ordered(control), ordered(candidate), p, margin)
    assert found == pytest.approx(by_definition(control, candidate, p, margin), abs=1e-9)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 3), (5, 5), (2, 8), (8, 2)])
@pytest.mark.parametrize("p", [0.5, 0.9])
def test_the_mean_e_value_of_equal_stacks_is_at_most_1(n: int, m: int, p: float) -> None:
    """Over all orders of the values of both, which are equally likely."""
    places = set(range(n + m))
    values = [
        exp(percentile_evidence(ordered(list(mine)), ordered(list(places - set(mine))), p))
        for mine in combinations(sorted(places), n)
    ]
    assert np.mean(values) <= 1


@given(SAMPLES, SAMPLES, PS, st.data())
def test_a_slower_value_never_takes_evidence_away(
    control: list[float], candidate: list[float], p: float, data: st.DataObject
) -> None:
    """Whichever value of the candidate grows."""
    place = data.draw(st.integers(0, len(candidate) - 1))
    slower = [*candidate]
    slower[place] += data.draw(st.floats(0, 10))
    before = percentile_evidence(ordered(control), ordered(candidate), p)
    assert percentile_evidence(ordered(control), ordered(slower), p) >= before - 1e-9


@given(SAMPLES, PS)
def test_a_stack_is_not_slower_than_itself(values: list[float], p: float) -> None:
    """Nor than no data."""
    assert percentile_evidence(ordered(values), ordered(values), p) <= 1e-9
    assert percentile_evidence(ordered(values), ordered([]), p) == 0
    assert percentile_evidence(ordered([]), ordered(values), p) == 0


def test_a_candidate_twice_as_slow_is_found_unless_the_margin_allows_it() -> None:
    """A thousand requests a side."""
    times = np.exp(0.6 * np.random.default_rng(1).standard_normal((2, 1_000)))
    control, candidate = np.sort(times * [[1], [2]])
    assert percentile_evidence(control, candidate, 0.95) > ALARM
    assert percentile_evidence(control, candidate, 0.95, margin=1.0) < ALARM


def rate(control: tuple[int, int], candidate: tuple[int, int], margin: float = 0.0) -> float:
    """Return the evidence of one pair of counts."""
    first, second = ((np.array(hits), np.array(n)) for hits, n in (control, candidate))
    return float(rate_evidence(first, second, margin))


@given(st.integers(1, 12), st.integers(1, 12), st.floats(0, 1), st.floats(0, 1))
def test_the_mean_e_value_of_no_worse_rates_is_at_most_1(
    n: int, m: int, control: float, share: float
) -> None:
    """Over every outcome, for any rate of the candidate up to the control's."""
    first, second = np.meshgrid(np.arange(n + 1), np.arange(m + 1), indexing="ij")
    trials = np.full_like(first, n), np.full_like(second, m)
    values = np.exp(rate_evidence((first, trials[0]), (second, trials[1])))
    chances = binom.pmf(first, n, control) * binom.pmf(second, m, control * share)
    assert float((values * chances).sum()) <= 1 + 1e-9


@given(st.integers(1, 8), st.floats(0, 0.8), st.sampled_from([0.05, 0.2]))
def test_the_margin_of_a_rate_holds(n: int, control: float, margin: float) -> None:
    """A candidate that fails more often by the margin itself is no worse."""
    first, second = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    trials = np.full_like(first, n)
    values = np.exp(rate_evidence((first, trials), (second, trials), margin))
    chances = binom.pmf(first, n, control) * binom.pmf(second, n, control + margin)
    assert float((values * chances).sum()) <= 1 + 1e-9


@given(st.integers(1, 10**5), st.sampled_from([1, 5, 19]), st.floats(0, 0.3), st.floats(0, 0.3))
def test_rate_evidence_is_close_to_the_smallest_product(
    others: int, times: int, control: float, candidate: float
) -> None:
    """Never above it, and near it wherever there is evidence: with counts of weeks, too."""
    trials = times * others
    hits, more = int(control * trials), int(candidate * others)
    found = rate((hits, trials), (more, others))
    steps, stakes = np.array([0.05, 0.15, 0.35, 0.8, 2.0]), [0.1, 0.3, 0.3, 0.15, 0.15]
    low, high = -40.0, 40.0
    least = np.inf
    for _ in range(12):
        odds = np.linspace(low, high, 501)[:, None]
        base = np.logaddexp(0, odds)
        first = -hits * steps - trials * (np.logaddexp(0, odds - steps) - base)
        second = more * steps - others * (np.logaddexp(0, odds + steps) - base)
        both = logsumexp(first, axis=-1, b=stakes) + logsumexp(second, axis=-1, b=stakes)
        least = min(least, float(both.min()))
        place = int(both.argmin())
        low, high = odds[max(place - 2, 0), 0], odds[min(place + 2, 500), 0]
    assert found <= least + 1e-6 * (1 + abs(least))
    assert least < 1 or found >= 0.9 * least


def test_failures_of_one_side_alone_are_found() -> None:
    """10 failures in 1 000 against none; a margin of 2 % allows for them."""
    assert rate((0, 1_000), (12, 1_000)) > ALARM
    assert rate((0, 1_000), (12, 1_000), margin=0.02) < 0.5
    assert rate((12, 1_000), (0, 1_000)) < 0


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans(), st.booleans()), max_size=60))
def test_evidence_of_turns_never_exceeds_the_sum_of_their_shares(
    drawn: list[tuple[int, bool, bool]],
) -> None:
    """So that all of them alarm falsely no more often than one; a turn of one side says nothing."""
    sides = [
        TurnValues(
            np.array([float(failed) for _, failed, side in drawn if side == which]),
            np.array([turn for turn, _, side in drawn if side == which], dtype=np.int64),
        )
        for which in (False, True)
    ]
    e_values, shares = 0.0, 0.0
    for turn in range(20):
        share = 0.2 / (turn * (turn + 1)) if turn else 0.8
        shares += share
        control, candidate = (side.of(turn) for side in sides)
        if len(control) and len(candidate):
            e_values += share * exp(failure_evidence(control, candidate))
    assert shares <= 1
    assert exp(evidence_by_turn(sides[0], sides[1], failure_evidence)) <= max(1.0, e_values + 1e-9)


def test_a_fault_of_second_turns_alone_is_found() -> None:
    """First requests are equal; one conversation that fails at each of its turns is one failure."""
    turns = np.tile([0, 1], 500)
    equal, failing = np.zeros(1_000), np.where(turns == 1, np.arange(1_000) % 20 == 1, 0.0)
    control = TurnValues(equal, turns)
    assert evidence_by_turn(control, TurnValues(failing, turns), failure_evidence) > ALARM
    alone = TurnValues(np.ones(20), np.arange(20))
    assert evidence_by_turn(control, alone, failure_evidence) < ALARM


def test_the_alarm_is_one_in_twenty() -> None:
    """Ville's inequality at 5 %."""
    assert pytest.approx(log(20)) == ALARM
