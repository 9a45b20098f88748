"""Emotion and intent: a lexicon, denial, intensity; the same on every run, and fast."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.flows.companion import Feeling
from rules.emotion import CALM, CHAT, SPAN, Lexicon, excerpt, feel, intent, snippet

FELT: list[tuple[str, Feeling]] = [
    ("今天很开心", "joy"),
    ("我不开心", "sadness"),
    ("我不是不开心", "joy"),
    ("没有难过", "neutral"),
    ("不喜欢", "disgust"),
    ("特别讨厌", "anger"),
    ("I am not happy", "sadness"),
    ("I'm so happy", "joy"),
    ("I don't feel sad", "neutral"),
    ("不，我很高兴", "joy"),
    ("麻烦看一下", "neutral"),
    ("unhappy", "sadness"),
    ("sadly happyish", "neutral"),
    ("", "neutral"),
]


@pytest.mark.parametrize(("text", "primary"), FELT)
def test_a_mood_is_read(text: str, primary: Feeling) -> None:
    """In two languages; what is denied is not felt, denied twice it is; a clause ends a denial."""
    assert feel(text).primary == primary


def test_a_mood_is_stronger_or_weaker() -> None:
    """By the words before it, by an exclamation, by how often it is said."""
    weak, plain, strong, loud = (
        feel(text).intensity for text in ("有点难过", "难过", "非常难过", "非常难过！")
    )
    assert weak < plain < strong < loud
    assert feel("难过，伤心").intensity > plain
    assert feel("难过，伤心").confidence > feel("难过，开心，伤心").confidence


def test_a_message_without_feeling_is_calm_and_unsure() -> None:
    """Neutral, without intensity."""
    assert feel("今天星期三") == CALM


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("帮我查一下天气", "request"),
        ("不用帮我", None),
        ("为什么", "question"),
        ("Tell me why", "question"),
        ("是这样？", "question"),
        ("记住我对花生过敏", "remember"),
        ("晚安", "farewell"),
        ("hello", "greeting"),
        ("今天星期三", None),
    ],
)
def test_an_intent_is_read(text: str, after: str | None) -> None:
    """And the prompt has a line for each."""
    assert intent(text) == after
    assert (snippet(text) == CHAT) == (after is None)


@given(st.text(max_size=300))
def test_any_text_has_a_mood(text: str) -> None:
    """Within bounds, and the same again."""
    mood = feel(text)
    assert mood == feel(text)
    assert 0 <= mood.intensity <= 1
    assert 0 <= mood.confidence <= 1
    assert snippet(text)


def test_a_long_text_is_read_at_its_ends() -> None:
    """What lies between is pasted."""
    between = "难过" * 10 * SPAN
    assert feel("开心，" + "字" * SPAN + between + "字" * SPAN).primary == "joy"
    assert len(excerpt(between)) == 2 * SPAN + 1


@pytest.mark.parametrize("text", ["开心" * 32_768, "happy " * 10_922, "不很太开心" * 13_107])
def test_a_long_text_costs_no_more_than_its_ends(text: str) -> None:
    """What stands between is not looked at, however much of it means something."""
    lexicon: Lexicon[Feeling] = Lexicon({"joy": "开心 happy"})
    assert lexicon.hits(text) == lexicon.hits(excerpt(text))
    assert len(lexicon.hits(text)) <= 2 * SPAN
