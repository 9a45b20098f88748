"""The window: the newest turns that fit, in the order they were said."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contract.stores import Turn
from rules.conversation import estimate, window


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
