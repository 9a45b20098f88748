"""Preferences: what is drawn, how both orders are joined, what judgements add up to."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from evidence.preferences import (
    FEWEST_CHECKS,
    PERSON,
    AnswerPair,
    Choice,
    JudgedPair,
    Preferred,
    Sampler,
    candidate_first,
    of_both_orders,
    preferred,
    quality_check,
    shown,
    tally,
)

CHOICES: tuple[Choice, ...] = ("a", "b", "tie", "skip", "invalid")
PREFERRED: tuple[Preferred, ...] = (
    "control",
    "candidate",
    "tie",
    "position",
    "invalid",
    "skipped",
)
choices = st.sampled_from(CHOICES)


def pair(exchange: str) -> AnswerPair:
    """Return a pair of unlike answers."""
    return AnswerPair(exchange, "chat", 1, "question", "old", "new")


def one(exchange: object, liked: Preferred, judge: str = PERSON, **fields: bool) -> JudgedPair:
    """Return a judgement of the flow chat."""
    return JudgedPair(
        exchange=str(exchange), flow="chat", began=1, judge=judge, preferred=liked, **fields
    )


def many(control: int, candidate: int, judge: str = PERSON) -> list[JudgedPair]:
    """Return judgements with so many preferences."""
    return [
        *(one(f"c{k}", "control", judge) for k in range(control)),
        *(one(f"n{k}", "candidate", judge) for k in range(candidate)),
    ]


def checks(count: int, liked: Preferred, *, same: bool = True) -> list[JudgedPair]:
    """Return comparisons of the control with itself."""
    return [one(f"i{k}", liked, "m", itself=True, same=same) for k in range(count)]


@given(st.lists(st.text(max_size=8), unique=True), st.integers(0, 9), st.integers(0, 99))
def test_a_sample_depends_on_the_seed_alone(names: list[str], size: int, seed: int) -> None:
    """Not on the order in which pairs are offered; a smaller sample begins a larger one."""
    forwards, backwards, larger = Sampler(size, seed), Sampler(size, seed), Sampler(size + 3, seed)
    for name in names:
        forwards.add(pair(name))
        larger.add(pair(name))
    for name in reversed(names):
        backwards.add(pair(name))
    assert forwards.pairs == backwards.pairs == larger.pairs[:size]
    assert len(forwards.pairs) == min(size, len(names))
    assert forwards.offered == len(names)


def test_the_order_is_drawn() -> None:
    """Each stack is A about half the time, and another seed draws another order."""
    first = [candidate_first(str(k), 0) for k in range(1_000)]
    assert 430 < sum(first) < 570
    assert first != [candidate_first(str(k), 1) for k in range(1_000)]


@given(st.text(), st.integers(0, 99), choices)
def test_a_choice_is_of_what_was_shown(name: str, seed: int, choice: Choice) -> None:
    """Whichever answer is A, preferring it prefers the stack that wrote it."""
    seen = shown(pair(name), seed)
    liked = preferred(choice, candidate_is_a=candidate_first(name, seed))
    texts = {"a": seen.a, "b": seen.b}
    if choice in texts:
        assert {"old": "control", "new": "candidate"}[texts[choice]] == liked
    else:
        assert liked == {"skip": "skipped"}.get(choice, choice)


@given(choices, choices)
def test_swapping_both_orders_swaps_the_preference(first: Choice, second: Choice) -> None:
    """What is control and what is candidate is of no account to the judge."""
    swapped = {"control": "candidate", "candidate": "control"}
    liked = of_both_orders(first, second)
    assert of_both_orders(second, first) == swapped.get(liked, liked)


def test_both_orders_are_joined() -> None:
    """Only the same answer twice is a preference; always A is position; invalid is no tie."""
    assert of_both_orders("a", "b") == "control"
    assert of_both_orders("b", "a") == "candidate"
    assert of_both_orders("tie", "tie") == "tie"
    for first, second in (("a", "a"), ("b", "b"), ("tie", "a"), ("b", "tie")):
        assert of_both_orders(first, second) == "position"  # type: ignore[arg-type]
    for other in CHOICES:
        assert of_both_orders("invalid", other) == of_both_orders(other, "invalid") == "invalid"


@given(st.lists(st.sampled_from(PREFERRED), max_size=60))
def test_a_tally_counts_everything_once(liked: list[Preferred]) -> None:
    """And its interval and p-value are scipy's, of pairs with a preference."""
    found = tally(one(k, which) for k, which in enumerate(liked))
    assert len(found) == bool(liked)
    for sums in found:
        others = sums.ties + sums.position + sums.invalid + sums.skipped
        assert sums.decided + others == len(liked)
        if sums.decided:
            exact = binomtest(sums.candidate, sums.decided)
            interval = exact.proportion_ci(method="exact")
            assert sums.p == pytest.approx(exact.pvalue)
            assert (sums.low, sums.high) == pytest.approx((interval.low, interval.high))
        else:
            assert (sums.share, sums.low, sums.high, sums.p) == (None,) * 4


def test_a_judge_that_cannot_tell_itself_apart_passes_its_check() -> None:
    """Ties between equal texts, and any preference between unlike ones, speak for it."""
    for found in (checks(FEWEST_CHECKS, "tie"), checks(FEWEST_CHECKS, "candidate", same=False)):
        [sums] = tally(found)
        assert sums.counts
        assert sums.decided == 0  # it is no preference for graph


@pytest.mark.parametrize(
    "found",
    [
        checks(FEWEST_CHECKS - 1, "tie"),
        checks(FEWEST_CHECKS, "position"),
        checks(FEWEST_CHECKS, "invalid"),
        checks(FEWEST_CHECKS, "control"),
        [],
    ],
)
def test_a_judge_that_fails_its_check_does_not_count(found: list[JudgedPair]) -> None:
    """Too few, position, invalid, or one of two equal texts preferred."""
    judged = [*found, *many(50, 0, "m")]
    assert not tally(judged)[0].counts
    check = quality_check(judged, "chat", 0.05, critical=False, rows="f")
    assert check is not None
    assert (check.verdict, "against itself" in check.reason) == ("cannot_tell", True)


@pytest.mark.parametrize(
    ("judged", "critical", "verdict"),
    [
        (many(40, 10), False, "hold"),
        (many(40, 10), True, "hold"),
        (many(26, 24), False, "promote"),
        (many(26, 24), True, "cannot_tell"),
        (many(10, 40), True, "promote"),
        (many(3, 0), False, "promote"),
        (many(520, 480), True, "promote"),
        ([one(1, "tie")], False, "cannot_tell"),
        ([], True, "cannot_tell"),
    ],
)
def test_the_gate_holds_where_graph_is_liked_less(
    judged: list[JudgedPair], critical: bool, verdict: str
) -> None:
    """Significantly, and by more than the margin; a critical check must rule it out."""
    margin = 0.2 if judged and len(judged) == len(many(520, 480)) else 0.05
    check = quality_check(judged, "chat", margin, critical=critical, rows="f")
    assert check is not None
    assert (check.name, check.verdict) == ("quality", verdict)


def test_nobody_asked_is_no_check() -> None:
    """Neither is a judgement of another flow."""
    assert quality_check([], "chat", 0.05, critical=False, rows="f") is None
    assert quality_check(many(9, 1), "pipeline", 0.05, critical=False, rows="f") is None


def test_people_count_before_models() -> None:
    """A model that passed counts where people prefer nothing."""
    model = [*checks(FEWEST_CHECKS, "tie"), *many(50, 0, "m")]
    check = quality_check([*model, *many(0, 50)], "chat", 0.05, critical=False, rows="f")
    assert check is not None
    assert check.verdict == "promote"
    check = quality_check([*model, one("x", "tie")], "chat", 0.05, critical=False, rows="f")
    assert check is not None
    assert check.verdict == "hold"


def test_all_outcomes_are_known() -> None:
    """Every pair of choices has an outcome."""
    outcomes = {of_both_orders(first, second) for first, second in product(CHOICES, CHOICES)}
    assert outcomes == set(PREFERRED)
