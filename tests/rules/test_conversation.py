"""Conversations: the newest turns that fit, the estimate of their tokens, fixed texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.stores import Turn
from rules.conversation import estimate, fixed_text, window


def turns(*texts: str) -> tuple[Turn, ...]:
    """Build turns, oldest first."""
    return tuple(
        Turn(message_id=f"m-{number}", role="user", content=text)
        for number, text in enumerate(texts)
    )


def test_the_newest_turns_that_fit_are_returned_oldest_first() -> None:
    """Three turns of two tokens and a budget of five: the last two."""
    said = turns("a" * 8, "b" * 8, "c" * 8)
    assert window(said, 5) == said[1:]
    assert window(said, 6) == said


def test_a_turn_that_does_not_fit_hides_all_before_it() -> None:
    """A conversation with a hole in it would be another conversation."""
    said = turns("a", "b" * 400, "c")
    assert window(said, 10) == said[2:]


def test_no_budget_keeps_nothing_but_empty_turns() -> None:
    """Zero tokens is the least there is."""
    said = turns("a", "", "")
    assert window(said, 0) == said[1:]
    assert window((), 100) == ()


@given(st.lists(st.text("ab你", max_size=12), max_size=10), st.integers(0, 30))
def test_a_window_is_the_longest_ending_within_the_budget(texts: list[str], budget: int) -> None:
    """Within it, and one turn more would not be."""
    said = turns(*texts)
    kept = window(said, budget)
    assert kept == said[len(said) - len(kept) :]
    assert sum(estimate(turn.content) for turn in kept) <= budget
    if len(kept) < len(said):
        more = said[len(said) - len(kept) - 1 :]
        assert sum(estimate(turn.content) for turn in more) > budget


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("abcd", 1),
        ("abcde", 2),
        ("你好", 2),
        ("你好abcd", 3),
        ("é", 1),
        ("😀", 1),
    ],
)
def test_four_ascii_characters_are_a_token_and_any_other_is_one(text: str, tokens: int) -> None:
    """Rounded up."""
    assert estimate(text) == tokens


@given(st.text(max_size=40))
def test_the_estimate_is_what_its_sentence_says(text: str) -> None:
    """Counted character by character."""
    plain = sum(character.isascii() for character in text)
    assert estimate(text) == len(text) - plain + (plain + 3) // 4


@given(st.text(max_size=20), st.text(max_size=20))
def test_more_text_is_never_fewer_tokens(text: str, more: str) -> None:
    """A window that fits still fits when a turn is left out."""
    assert estimate(text) <= estimate(text + more) <= estimate(text) + estimate(more)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{worker}: {code}", "{code}: {worker}"),
        ("{x} {{code}} {worker", "{x} {{worker}} {worker"),
        ("", ""),
    ],
)
def test_values_of_a_fixed_text_are_filled_in_once(template: str, expected: str) -> None:
    """What a value says is no place for another one: a model may have written it."""
    overrides = {"refused": template}
    found = fixed_text({"refused": "…"}, overrides, "refused", worker="{code}", code="{worker}")
    assert found == expected
