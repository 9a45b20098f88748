"""The permutation test: against brute force, and in simulations under chance and with a shift."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence import permutation
from evidence.permutation import Choices, chance_of_all, chance_of_flag, chance_of_one, choices_of

DISTANCES = st.lists(st.integers(0, 10).map(lambda n: n / 10), min_size=1, max_size=3)
RUNS = st.tuples(DISTANCES, DISTANCES)
ROUNDS = 400


def mean(values: list[float]) -> float:
    """Give a mean."""
    return sum(values) / len(values)


def every_choice(again: list[float], graph: list[float]) -> list[float]:
    """List the differences by the definition, run by run."""
    pool = graph + again
    indices = range(len(pool))
    return [
        mean([pool[i] for i in chosen]) - mean([pool[i] for i in indices if i not in chosen])
        for chosen in combinations(indices, len(graph))
    ]


@pytest.mark.slow
@given(st.lists(RUNS, min_size=1, max_size=4))
def test_the_exact_test_is_brute_force(runs: list[tuple[list[float], list[float]]]) -> None:
    """All choices of all messages, counted one by one."""
    messages = [every_choice(again, graph) for again, graph in runs]
    seen = sum(message[0] for message in messages)
    sums = [sum(choice) for choice in product(*messages)]
    expected = mean([float(total >= seen - 1e-9) for total in sums])
    found = chance_of_all([choices_of(again, graph) for again, graph in runs])
    assert found.exact
    assert found.p == pytest.approx(expected)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8))
def test_one_run_of_each_is_the_sign_flip_test(pairs: list[tuple[int, int]]) -> None:
    """Each difference keeps its sign or turns it."""
    differences = [graph - again for again, graph in pairs]
    flips = product((1, -1), repeat=len(pairs))
    sums = [sum(s * d for s, d in zip(signs, differences, strict=True)) for signs in flips]
    expected = mean([float(total >= sum(differences)) for total in sums])
    found = chance_of_all([choices_of([float(a)], [float(g)]) for a, g in pairs])
    assert found.p == pytest.approx(expected)


@pytest.mark.slow
@given(DISTANCES, DISTANCES)
def test_one_message_is_ranked_among_its_choices(again: list[float], graph: list[float]) -> None:
    """The p-value is a rank, and how often chance gets it there is counted, not assumed."""
    choices = choices_of(again, graph)
    expected = every_choice(again, graph)
    ranks = [mean([float(other >= one - 1e-9) for other in expected]) for one in expected]
    assert chance_of_one(choices) == pytest.approx(ranks[0])
    level = 0.3
    assert chance_of_flag(choices, level) == pytest.approx(mean([float(r <= level) for r in ranks]))
    assert chance_of_flag(choices, level) <= level


def test_nineteen_other_runs_are_the_fewest_that_flag_one_message() -> None:
    """One in twenty is 5 %; three and three make twenty choices too."""
    assert chance_of_one(choices_of([0.1] * 18, [0.9])) > 0.05
    assert chance_of_one(choices_of([0.1] * 19, [0.9])) == pytest.approx(0.05)
    assert chance_of_one(choices_of([0.1] * 3, [0.9] * 3)) == pytest.approx(0.05)


def test_messages_that_cannot_differ_change_nothing() -> None:
    """Equal distances are no evidence and cost no resolution."""
    moving = [choices_of([0.1], [0.2])] * 3
    still = [choices_of([0.5], [0.5])] * 500
    assert chance_of_all([*moving, *still]) == chance_of_all(moving)
    assert chance_of_all(still).p == 1.0


def test_drawn_and_exact_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """The draws come from the choices that are counted."""
    random = np.random.default_rng(7)
    messages = [choices_of([a], [g]) for a, g in random.random((14, 2))]
    exact = chance_of_all(messages)
    monkeypatch.setattr(permutation, "EXACT_UP_TO", 1)
    drawn = chance_of_all(messages)
    assert (exact.exact, drawn.exact) == (True, False)
    assert drawn.p == pytest.approx(exact.p, abs=0.02)
    assert drawn == chance_of_all(messages)


def test_many_runs_of_one_message_are_drawn_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was seen stays the first, and is counted."""
    exact = choices_of([0.1, 0.2, 0.3, 0.2, 0.1], [0.2, 0.4, 0.3])
    monkeypatch.setattr(permutation, "EXACT_UP_TO", 1)
    drawn = choices_of([0.1, 0.2, 0.3, 0.2, 0.1], [0.2, 0.4, 0.3])
    assert drawn[0] == pytest.approx(exact[0])
    assert len(drawn) == permutation.DRAWS + 1
    assert chance_of_one(drawn) == pytest.approx(chance_of_one(exact), abs=0.02)


def simulated(seed: int, messages: int, shift: float, runs: tuple[int, int]) -> list[Choices]:
    """Draw messages whose distances are skewed, and near each other within a message."""
    random = np.random.default_rng(seed)
    again, graph = runs
    own = random.beta(2, 4, size=(messages, 1))
    noise = random.beta(2, 6, size=(messages, again + graph))
    distances = own + noise
    distances[:, :graph] += shift
    return [choices_of(row[graph:], row[:graph]) for row in distances]


@pytest.mark.parametrize("runs", [(1, 1), (3, 1), (2, 2)])
def test_chance_alone_is_called_a_difference_in_five_percent(runs: tuple[int, int]) -> None:
    """False alarms at the nominal level, within what 400 rounds can show."""
    ps = [chance_of_all(simulated(k, 7, 0.0, runs)[: 14 // sum(runs)]).p for k in range(ROUNDS)]
    rate = mean([float(p <= 0.05) for p in ps])
    assert rate <= 0.05 + 3 * (0.05 * 0.95 / ROUNDS) ** 0.5
    assert rate >= 0.01


def test_one_message_is_flagged_by_chance_in_five_percent() -> None:
    """Nineteen other legacy runs each: one message in twenty, as is said beside the count."""
    messages = simulated(3, 2_000, 0.0, (19, 1))
    flagged = sum(chance_of_one(message) <= 0.05 for message in messages)
    expected = sum(chance_of_flag(message, 0.05) for message in messages)
    assert expected == pytest.approx(100)
    assert flagged == pytest.approx(expected, abs=3 * 95**0.5)


def test_a_planted_shift_is_found() -> None:
    """A shift of most of a standard deviation, in twelve messages: nine times in ten."""
    found = [chance_of_all(simulated(k, 12, 0.15, (1, 1))).p <= 0.05 for k in range(200)]
    assert mean([float(one) for one in found]) > 0.8
