"""Patterns of rules: Python's, and none may take for ever."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.rules import texts
from compare.rules.texts import ExpressionTooSlow, expression_of, found_in

ENDLESS = "((a{1,100}){1,100}){1,100}b"
CLASSICS = ("(a+)+$", "(a|a)*b", "(a|aa)+$", "(.*)*!", "a*a*a*a*a*a*b", ENDLESS)
USUAL = (
    r"\d{4}-\d\d",
    r"(?i)b+",
    r"(?<!a)b",
    r"\b\w+",
    r"(?P<x>[ab])(?P=x)",
    r"^a|b$",
    "a??",
    "[^a]",
)


@pytest.mark.parametrize("pattern", CLASSICS)
def test_no_pattern_takes_for_ever(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes to an end, or is named."""
    monkeypatch.setattr(texts, "PATIENCE_S", 0.05)
    with suppress(ExpressionTooSlow):
        list(found_in(expression_of(pattern), "a" * 3_000 + "?"))


def test_one_that_backtracks_without_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the text's length, never the text."""
    monkeypatch.setattr(texts, "PATIENCE_S", 0.05)
    with pytest.raises(ExpressionTooSlow, match=r"over 0\.05 s on a text of 3,000 characters"):
        list(found_in(expression_of(ENDLESS), "a" * 3_000))


@given(st.text("abB1234- 北\n", max_size=20))
def test_patterns_mean_what_they_mean_in_python(text: str) -> None:
    """Empty matches included."""
    for pattern in USUAL:
        found = [match.span() for match in found_in(expression_of(pattern), text)]
        assert found == [match.span() for match in re.finditer(pattern, text)]
