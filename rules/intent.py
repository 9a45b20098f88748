"""Intents: a lexicon of what messages ask for, and a line for the prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from rules.emotion import Lexicon

Intent = Literal["remember", "request", "question", "comfort", "thanks", "farewell", "greeting"]

_WORDS: Mapping[Intent, str] = {
    "remember": "记住 记得 别忘 记一下 记下 remember memorize",
    "request": (
        "帮我 请你 请帮 麻烦 提醒 安排 查一下 算一下 写一 翻译 总结 please help remind "
        "schedule write translate summarize calculate"
    ),
    "question": (
        "什么 怎么 为什么 为何 哪里 哪个 谁 几点 多少 吗 呢 如何 是否 what why how where "
        "which who when"
    ),
    "comfort": "陪我 安慰 聊聊 倾诉 心情 comfort listen talk",
    "thanks": "谢谢 感谢 多谢 thanks thank",
    "farewell": "再见 拜拜 晚安 下次聊 bye goodbye night",
    "greeting": "你好 您好 嗨 早安 早上好 晚上好 hello hi hey morning",
}
_LEXICON: Lexicon[Intent] = Lexicon(_WORDS)

_SNIPPETS: Mapping[Intent, str] = {
    "remember": "用户希望你记住一件事：复述要点，确认已经明白。",
    "request": "用户在请你做一件事：先弄清缺少的信息，需要时使用工具，再给出结果。",
    "question": "用户在提问：先给出答案，再作必要的说明。",
    "comfort": "用户想有人倾听：先回应情绪，不要急着给建议。",
    "thanks": "用户在道谢：自然地回应，不要展开新话题。",
    "farewell": "用户在道别：简短、温暖地道别。",
    "greeting": "用户在打招呼：亲切地回应，可以问问近况。",
}
CHAT = "用户在闲聊：自然地接话。"
"""For a message without an intent."""


def intent(text: str) -> Intent | None:
    """Return a message's intent: the first in our order, not the first in the message.

    A denied word does not count: "no help needed" asks for none.
    """
    meant = {hit.label for hit in _LEXICON.hits(text) if not hit.denied}
    if "?" in text or "？" in text:
        meant.add("question")
    return next((label for label in _WORDS if label in meant), None)


def snippet(text: str) -> str:
    """Return a line for the prompt about the message's intent."""
    after = intent(text)
    return CHAT if after is None else _SNIPPETS[after]
