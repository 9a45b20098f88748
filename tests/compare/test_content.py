"""Content classes: read at the change, and the same as of the whole texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.content import _BLANK, _DATE, _NUMBER, ContentClass, content_class, text_class

TEXTS = st.lists(
    st.sampled_from(
        ("a", "e", " ", "1", "23", "-", "+", ".", ",", ":", "/", "年", "Mon", "May", "UTC", "12:05")
    ),
    min_size=1,
    max_size=12,
).map("".join)


def of_whole_texts(legacy: str, graph: str) -> ContentClass:
    """Return the class by its definition."""
    classes: tuple[ContentClass, ...] = ("white space", "date", "number")
    for pattern, name in zip((_BLANK, _DATE, _NUMBER), classes, strict=True):
        if pattern.sub("", legacy) == pattern.sub("", graph):
            return name
    return "wording"


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_a_class_is_that_of_the_whole_texts(
    before: str, legacy: str, graph: str, after: str
) -> None:
    """Whatever stands before and after the change, which dates and numbers may reach into."""
    one, other = before + legacy + after, before + graph + after
    assert content_class(one, other) == of_whole_texts(one, other)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ("Be kind. Be brief. Never guess.", "inserted"),
        ("Be kind.", "left out"),
        ("Be kind! Be brief.", "punctuation"),
        ("Be kind. Be short.", "wording"),
        ("Be kind.  Be brief.", "white space"),
        (None, "missing"),
    ],
)
def test_changes_of_a_template_are_told_apart(graph: str | None, expected: ContentClass) -> None:
    """What the same edit of a text does in every exchange."""
    assert text_class("Be kind. Be brief.", graph) == expected
