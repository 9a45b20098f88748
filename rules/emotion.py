"""Moods and intents: lexicons with denials and intensifiers, read from a message."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

from contract.flows.companion import Emotion, Feeling

L = TypeVar("L", bound=str)

SPAN: Final = 1_024
"""Characters read at either end of a long text: what lies between is mostly pasted."""

STRONG: Final = 1.5
WEAK: Final = 0.6

_BEFORE: Final = 6
"""Characters before a Chinese word in which it is denied, or made stronger or weaker."""
_WORDS_BEFORE: Final = 3
"""The same for English, in words."""

_CLAUSE = re.compile(r"[,.;:!?\n，。；：！？、…]")
_DENIAL = re.compile(
    r"不(?![仅但过只])|没(?!想到)|沒|(?<!特)别|別|未(?!来)|无(?!比)|無|非(?!常)|勿"
)
_STRONGER = re.compile(r"非常|特别|超|太|极|十分|真|好|很|无比|相当|最")
_WEAKER = re.compile(r"有点|有些|一点|稍|略|些许")
_TOKEN = re.compile(r"[a-z]+(?:['’][a-z]+)?|[,.;:!?\n，。；：！？、…]")
_DENIALS = frozenset({"not", "no", "never", "without", "hardly", "neither", "nor", "cannot"})
_STRONGERS = frozenset({"very", "so", "really", "extremely", "totally", "too", "absolutely"})
_WEAKERS = frozenset({"slightly", "somewhat", "bit", "little", "kinda", "rather"})


_WORDS: Mapping[Feeling, str] = {
    "joy": (
        "开心 高兴 快乐 幸福 喜悦 兴奋 激动 愉快 欢喜 满意 满足 太棒 真棒 好棒 不错 哈哈 "
        "嘻嘻 庆祝 期待 happy glad joy joyful delighted excited great wonderful awesome "
        "fantastic pleased cheerful yay haha fun satisfied"
    ),
    "affection": (
        "喜欢 爱你 想你 感谢 谢谢 感激 温暖 亲爱 抱抱 感动 love loved adore thanks thank "
        "grateful dear hug touched appreciate"
    ),
    "sadness": (
        "难过 伤心 悲伤 难受 失落 沮丧 郁闷 孤独 寂寞 哭 心碎 绝望 失望 遗憾 委屈 累了 累死 "
        "好累 很累 太累 心累 疲惫 sad unhappy upset depressed lonely cry crying heartbroken "
        "hopeless disappointed miserable tired"
    ),
    "anger": (
        "生气 愤怒 气死 恼火 讨厌 烦人 烦死 烦躁 好烦 很烦 心烦 火大 可恶 混蛋 受够 angry "
        "mad furious annoyed annoying hate irritated outraged pissed"
    ),
    "fear": (
        "害怕 恐惧 担心 焦虑 紧张 不安 恐慌 好怕 很怕 可怕 心慌 慌张 afraid scared fear "
        "worried anxious nervous panic terrified"
    ),
    "surprise": (
        "惊讶 吃惊 震惊 意外 居然 竟然 没想到 天哪 哇 surprised shocked wow amazing "
        "unexpected omg unbelievable"
    ),
    "disgust": "恶心 反感 厌恶 嫌弃 作呕 disgusting disgusted gross nasty yuck",
}
_ORDER: Sequence[Feeling] = tuple(_WORDS)
_DENIED: Mapping[Feeling, Feeling] = {"joy": "sadness", "affection": "disgust"}
"""What a denied feeling stands for, more weakly; of the others, denied, nothing is left."""
_STRENGTHS: Final = {STRONG: 0.8, 1.0: 0.55, WEAK: 0.3}
_MORE: Final = 0.05
_LOUD: Final = 0.1
_MOST_WORDS: Final = 5
_UNSURE: Final = 0.5
CALM: Final = Emotion("neutral", 0.0, _UNSURE)


@dataclass(frozen=True, slots=True)
class Hit(Generic[L]):
    """A word of the lexicon in a text: what it stands for, its weight, whether it is denied."""

    label: L
    at: int
    weight: float
    denied: bool


class Lexicon(Generic[L]):
    """Words by what they stand for, Chinese and English ones, in lower case."""

    def __init__(self, words: Mapping[L, str]) -> None:
        known = {word: label for label, listed in words.items() for word in listed.split()}
        self._english = {word: label for word, label in known.items() if word.isascii()}
        self._chinese = {word: label for word, label in known.items() if not word.isascii()}
        longest_first = sorted(self._chinese, key=lambda word: (-len(word), word))
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def hits(self, text: str) -> list[Hit[L]]:
        """Find the lexicon's words in a text's beginning and end, in the order they stand there."""
        read = excerpt(text).lower()
        return sorted((*self._in_chinese(read), *self._in_english(read)), key=lambda hit: hit.at)

    def _in_chinese(self, text: str) -> Iterator[Hit[L]]:
        for found in self._pattern.finditer(text):
            start = found.start()
            before = _CLAUSE.split(text[max(0, start - _BEFORE) : start])[-1]
            denied = len(_DENIAL.findall(before)) % 2 == 1
            weight = _weight(
                stronger=bool(_STRONGER.search(before)), weaker=bool(_WEAKER.search(before))
            )
            yield Hit(self._chinese[found[0]], start, weight, denied)

    def _in_english(self, text: str) -> Iterator[Hit[L]]:
        before: list[str] = []
        for found in _TOKEN.finditer(text):
            word = found[0]
            label = self._english.get(word)
            if label is not None:
                yield Hit(label, found.start(), _heard(before), _denied(before))
            before = [*before[1 - _WORDS_BEFORE :], word] if word[0].isalpha() else []


def excerpt(text: str) -> str:
    """Return the beginning and the end of a long text, a short one as it is."""
    return text if len(text) <= 2 * SPAN else f"{text[:SPAN]}\n{text[-SPAN:]}"


def _heard(before: Sequence[str]) -> float:
    return _weight(
        stronger=not _STRONGERS.isdisjoint(before), weaker=not _WEAKERS.isdisjoint(before)
    )


def _denied(before: Sequence[str]) -> bool:
    return sum(map(_denies, before)) % 2 == 1


def _denies(word: str) -> bool:
    return word in _DENIALS or word.endswith(("n't", "n’t"))


def denials(text: str) -> set[int]:
    """Return where the words of a text in lower case begin that deny something."""
    english = {found.start() for found in _TOKEN.finditer(text) if _denies(found[0])}
    return english | {found.start() for found in _DENIAL.finditer(text)}


def _weight(*, stronger: bool, weaker: bool) -> float:
    if weaker:
        return WEAK
    return STRONG if stronger else 1.0


_LEXICON: Lexicon[Feeling] = Lexicon(_WORDS)


def feel(text: str) -> Emotion:
    """Read the mood of a message; intensity and confidence from 0 to 1, in hundredths."""
    felt = [one for hit in _LEXICON.hits(text) if (one := _felt(hit))]
    if not felt:
        return CALM
    totals = {label: sum(weight for it, weight in felt if it == label) for label in _ORDER}
    primary = max(_ORDER, key=lambda label: totals[label])
    weights = [weight for label, weight in felt if label == primary]
    loud = _LOUD if "!" in text or "！" in text else 0.0
    more = _MORE * (min(len(weights), _MOST_WORDS) - 1)
    share = totals[primary] / sum(totals.values())
    sure = len(felt) / (len(felt) + _UNSURE)
    intensity = min(1.0, _STRENGTHS[max(weights)] + more + loud)
    return Emotion(primary, round(intensity, 2), round(share * sure, 2))


def _felt(hit: Hit[Feeling]) -> tuple[Feeling, float] | None:
    if not hit.denied:
        return hit.label, hit.weight
    opposite = _DENIED.get(hit.label)
    return None if opposite is None else (opposite, WEAK)


Intent = Literal["remember", "request", "question", "comfort", "thanks", "farewell", "greeting"]

_INTENT_WORDS: Mapping[Intent, str] = {
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
_INTENTS: Lexicon[Intent] = Lexicon(_INTENT_WORDS)

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
    meant = {hit.label for hit in _INTENTS.hits(text) if not hit.denied}
    if "?" in text or "？" in text:
        meant.add("question")
    return next((label for label in _INTENT_WORDS if label in meant), None)


def snippet(text: str) -> str:
    """Return a line for the prompt about the message's intent."""
    after = intent(text)
    return CHAT if after is None else _SNIPPETS[after]
