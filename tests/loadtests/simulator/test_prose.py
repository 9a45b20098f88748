"""In which language, and about what."""

import pytest

from loadtests.simulator.prose import language_of, topic_of


@pytest.mark.parametrize(
    ("text", "language", "topic"),
    [
        ("How can I improve my time management skills?", "en", "time management skills"),
        ("为什么秋天的树叶会变红？", "zh", "为什么秋天的树叶会变"),
        ("请帮我解释 asyncio", "zh", "请帮我解释"),
        ("", "en", ""),
        ("🚴", "en", ""),
        ("吗", "zh", ""),
    ],
)
def test_topics(text: str, language: str, topic: str) -> None:
    """The longest run of words, cut short."""
    assert language_of(text) == language
    assert topic_of(text, language_of(text)) == topic
