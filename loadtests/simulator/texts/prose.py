"""Text in the language of the question and about its words, drawn from a few phrases.

Everything is drawn from the request's digest: the same request always draws the same.
"""

import re
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b, shake_128
from importlib.resources import files
from itertools import cycle
from typing import Literal, TypeVar

import msgspec

from loadtests.simulator.request import count, pieces

Language = Literal["zh", "en"]
Item = TypeVar("Item")

CHINESE = re.compile(r"[\u3400-\u9fff]+")
ENGLISH = re.compile(r"[A-Za-z]+")
ENGLISH_RUN = re.compile(r"[A-Za-z'-]{4,}(?: [A-Za-z'-]{4,})*")
TOPIC_CHARACTERS = 10
TOPIC_WORDS = 3
SHORTEST = 40
SPREAD = 6


class Phrases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The phrases of one language; `{topic}` and `{result}` in them are filled in."""

    opening: tuple[str, ...]
    without_topic: str
    sentences: tuple[str, ...]
    flourishes: tuple[str, ...]
    preface: tuple[str, ...]
    preface_question: tuple[str, ...]
    quotes: dict[str, str]
    go_on: str
    filtered: tuple[str, ...]
    reasoning: str
    scenes: tuple[str, ...]


def _load() -> dict[Language, Phrases]:
    text = files("loadtests.simulator").joinpath("phrases.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[Language, Phrases])


PHRASES = _load()


def language_of(text: str) -> Language:
    """Chinese when there are at least as many Chinese characters as words, otherwise English."""
    characters = sum(map(len, CHINESE.findall(text)))
    return "zh" if characters and characters >= len(ENGLISH.findall(text)) else "en"


def topic_of(text: str, language: Language) -> str:
    """Return the longest run of words, which an answer takes up; empty when there are none."""
    if language == "zh":
        run = max(CHINESE.findall(text), key=len, default="")
        return run[:TOPIC_CHARACTERS] if len(run) > 1 else ""
    return " ".join(max(ENGLISH_RUN.findall(text), key=len, default="").split()[-TOPIC_WORDS:])


def plain(digest: bytes, language: Language, topic: str, tokens: int) -> list[str]:
    """An answer of exactly `tokens` tokens; with 0, of whole sentences, about 40 to 60 tokens."""
    wanted = tokens or SHORTEST + draw(digest, "length", SPREAD)
    phrases = PHRASES[language]
    opening = pick(digest, "opening", phrases.opening) if topic else phrases.without_topic
    text = opening.replace("{topic}", topic)
    # Every second answer ends in a list, code, JSON, emoji or a table.
    flourish = pick(digest, "flourish", ("", pick(digest, "which flourish", phrases.flourishes)))
    body = sentences(digest, language, wanted - count(text) - _length(flourish))
    answer = pieces(text + body + flourish)
    return answer[:tokens] if tokens else answer


def sentences(digest: bytes, language: Language, tokens: int) -> str:
    """Whole sentences until there are at least `tokens` tokens."""
    listed = PHRASES[language].sentences
    keys = stream(digest, "sentences", len(listed))
    space = " " if language == "en" else ""
    text = ""
    for place in cycle(sorted(range(len(listed)), key=keys.__getitem__)):
        if tokens <= 0:
            return text
        text += space + listed[place]
        tokens -= _length(space + listed[place])
    return text


def reasoning(digest: bytes, language: Language, topic: str, tokens: int) -> list[str]:
    """Think aloud for `tokens` tokens."""
    if not tokens:
        return []
    first = PHRASES[language].reasoning.replace("{topic}", topic or "…")
    return pieces(first + sentences(digest, language, tokens))[:tokens]


# Only phrases come here: the same few, over and over.
_length = lru_cache(1024)(count)


def draw(digest: bytes, label: str, below: int) -> int:
    """Draw one of `0 … below - 1`; `label` keeps independent choices independent."""
    return int.from_bytes(blake2b(digest + label.encode(), digest_size=8).digest(), "big") % below


def pick(digest: bytes, label: str, options: Sequence[Item]) -> Item:
    """Draw one of the options."""
    return options[draw(digest, label, len(options))]


def stream(digest: bytes, label: str, count: int) -> list[int]:
    """Draw `count` numbers of 16 bits."""
    raw = shake_128(digest + label.encode()).digest(2 * count)
    return [int.from_bytes(raw[place : place + 2], "big") for place in range(0, 2 * count, 2)]


def name(digest: bytes, label: str, length: int) -> str:
    """Draw an identifier of at most 40 hexadecimal digits."""
    return blake2b(digest + label.encode(), digest_size=20).hexdigest()[:length]
