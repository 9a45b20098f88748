"""Cutting texts into tokens."""

from hypothesis import given
from hypothesis import strategies as st

from loadtests.simulator.request import count, pieces, prompt_tokens
from tests.loadtests.simulator.asking import asked


@given(st.text())
def test_nothing_is_lost(text: str) -> None:
    """Joined again, tokens are the text."""
    assert "".join(pieces(text)) == text
    assert count(text) == len(pieces(text))


def test_the_estimate_is_the_documented_one() -> None:
    """Words, pairs of characters, groups of digits, single signs."""
    assert pieces("Hello world, 1234 你好吗🚴") == [
        "Hello",
        " world",
        ",",
        " 123",
        "4",
        " ",
        "你好",
        "吗",
        "🚴",
    ]
    # 3 for the prompt, 4 for each message, and their tokens
    assert prompt_tokens(asked("Hello")) == 3 + (4 + 4) + (4 + 5)
