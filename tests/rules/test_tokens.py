"""Token counts are an estimate with known figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.conversation import estimate


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
