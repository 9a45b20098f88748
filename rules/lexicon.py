"""Words found in a text: which, whether they are denied there, and how strongly they are meant."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

L = TypeVar("L", bound=str)

SPAN: Final = 1_024
"""Characters read at either end of a long text: what lies between is pasted, not said."""

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
    """Give the beginning and the end of a long text, a short one as it is."""
    return text if len(text) <= 2 * SPAN else f"{text[:SPAN]}\n{text[-SPAN:]}"


def _heard(before: Sequence[str]) -> float:
    return _weight(
        stronger=not _STRONGERS.isdisjoint(before), weaker=not _WEAKERS.isdisjoint(before)
    )


def _denied(before: Sequence[str]) -> bool:
    denials = (word in _DENIALS or word.endswith(("n't", "n’t")) for word in before)
    return sum(denials) % 2 == 1


def _weight(*, stronger: bool, weaker: bool) -> float:
    if weaker:
        return WEAK
    return STRONG if stronger else 1.0
