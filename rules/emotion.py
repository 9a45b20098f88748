"""What a message tells of its author's mood: by a lexicon, the same on every run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from contract.companion import Emotion
from rules.lexicon import STRONG, WEAK, Hit, Lexicon

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from contract.companion import Feeling

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
_LEXICON: Lexicon[Feeling] = Lexicon(_WORDS)

_ORDER: Sequence[Feeling] = tuple(_WORDS)
_DENIED: Mapping[Feeling, Feeling] = {"joy": "sadness", "affection": "disgust"}
"""What a denied feeling stands for, more weakly; of the others, denied, nothing is left."""

_STRENGTHS: Final = {STRONG: 0.8, 1.0: 0.55, WEAK: 0.3}
_MORE: Final = 0.05
_LOUD: Final = 0.1
_MOST_WORDS: Final = 5
_UNSURE: Final = 0.5

CALM: Final = Emotion("neutral", 0.0, _UNSURE)


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
