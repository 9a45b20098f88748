"""The user's emotion, read from a message by a lexicon; microseconds, no model."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rules.flows.companion import CompanionEmotion, Feeling

LEXICON: Final[Mapping[Feeling, str]] = tomllib.loads(
    (Path(__file__).parent / "lexicons.toml").read_text("utf-8")
)["emotions"]
"""Words by what they show; where two feelings are even, the one that stands first wins."""

_READ: Final = 1_024
"""Characters that are read at either end: what lies between is mostly pasted."""
_NEAR: Final = 12
"""Characters before a word in which it is denied, or made stronger or weaker."""

_WORDS: Final = {word: feeling for feeling, listed in LEXICON.items() for word in listed.split()}
_PATTERN: Final = re.compile(
    "|".join(
        rf"\b{word}\b" if word.isascii() else word
        for word in sorted(_WORDS, key=lambda word: (-len(word), word))
    )
)
_CLAUSE: Final = re.compile(r"[,.;:!?\n，。；：！？、…]")
_DENIAL: Final = re.compile(
    r"不(?![仅但过只])|没(?!想到)|别(?<!特别)|(?:\b(?:not|no|never)|n['’]t)\b"
)
_STRONGER: Final = re.compile(r"非常|特别|超|太|极|十分|真|好|很|\b(?:very|so|really|extremely)\b")
_WEAKER: Final = re.compile(r"有点|有些|一点|稍|略|\b(?:slightly|somewhat|a bit|a little)\b")
_OPPOSITE: Final[Mapping[Feeling, Feeling]] = {"joy": "sadness", "affection": "disgust"}
_WEAK, _PLAIN, _STRONG = 0.3, 0.55, 0.8
_LOUD: Final = 0.1

CALM: Final = CompanionEmotion("neutral", 0.0, 0.5)
"""A message in which no word shows a feeling."""


def emotion_of(message: str) -> CompanionEmotion:
    """Return the emotion of a message; intensity and confidence from 0 to 1, in hundredths."""
    found: dict[Feeling, list[float]] = {}
    read = message if len(message) <= 2 * _READ else f"{message[:_READ]}\n{message[-_READ:]}"
    lowered = read.lower()
    for hit in _PATTERN.finditer(lowered):
        before = _CLAUSE.split(lowered[max(0, hit.start() - _NEAR) : hit.start()])[-1]
        feeling: Feeling | None = _WORDS[hit.group()]
        strength = _strength(before)
        if _DENIAL.search(before):
            feeling, strength = _OPPOSITE.get(_WORDS[hit.group()]), _WEAK
        if feeling is not None:
            found.setdefault(feeling, []).append(strength)
    if not found:
        return CALM
    primary = max((one for one in LEXICON if one in found), key=lambda one: sum(found[one]))
    loud = _LOUD if "!" in read or "！" in read else 0.0
    total, hits = sum(map(sum, found.values())), sum(map(len, found.values()))
    intensity = min(1.0, max(found[primary]) + loud)
    confidence = sum(found[primary]) / total * hits / (hits + 0.5)
    return CompanionEmotion(primary, round(intensity, 2), round(confidence, 2))


def _strength(before: str) -> float:
    if _WEAKER.search(before):
        return _WEAK
    return _STRONG if _STRONGER.search(before) else _PLAIN
