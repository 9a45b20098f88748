"""Text in the language of the question, drawn from a bank of phrases."""

import tomllib
from functools import lru_cache
from importlib.resources import files
from itertools import cycle, islice

import msgspec

from loadtests.simulator.draw import draw, pick, shuffled
from loadtests.simulator.language import Language
from loadtests.simulator.tokens import count, pieces

FLOURISHES = ("list", "code", "json", "emoji", "table")
SHORTEST = 40
SPREAD = 6
ONE_IN = 2
PART_OF_STORY = 12


class Phrases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bank of one language."""

    opening: tuple[str, ...]
    without_topic: str
    sentences: tuple[str, ...]
    list: str
    code: str
    json: str
    emoji: str
    table: str
    preface: tuple[str, ...]
    preface_question: tuple[str, ...]
    quote_calculate: str
    quote_current_time: str
    quote_convert_units: str
    quote_search_memory: str
    quote_ask_human: str
    quote_refused: str
    quote_other: str
    quote_error: str
    go_on: str
    filtered: tuple[str, ...]
    story: tuple[str, ...]
    reasoning: tuple[str, ...]
    scenes: tuple[str, ...]


def _load() -> dict[Language, Phrases]:
    text = files("loadtests.simulator").joinpath("phrases.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[Language, Phrases])


BANK = _load()


def plain(digest: bytes, language: Language, topic: str, tokens: int) -> list[str]:
    """An answer of exactly `tokens` tokens; with 0, of whole sentences, about 40 to 60 tokens."""
    wanted = tokens or SHORTEST + draw(digest, "length", SPREAD)
    phrases = BANK[language]
    opening = pick(digest, "opening", phrases.opening) if topic else phrases.without_topic
    flourish = _flourish(digest, phrases)
    text = opening.replace("{topic}", topic)
    body = sentences(digest, language, wanted - count(text) - _length(flourish))
    answer = pieces(text + body + flourish)
    return answer[:tokens] if tokens else answer


def sentences(digest: bytes, language: Language, tokens: int) -> str:
    """Whole sentences until there are at least `tokens` tokens."""
    order = shuffled(digest, "sentences", BANK[language].sentences)
    space = " " if language == "en" else ""
    text = ""
    for sentence in cycle(order):
        if tokens <= 0:
            return text
        text += space + sentence
        tokens -= _length(space + sentence)
    return text


def story(digest: bytes, language: Language, tokens: int) -> list[str]:
    """Begin a story that has no end, `tokens` tokens of it."""
    order = shuffled(digest, "story", BANK[language].story)
    text = "".join(islice(cycle(order), tokens // PART_OF_STORY * 2 + 2))
    return pieces(text.strip())[:tokens]


def reasoning(digest: bytes, language: Language, topic: str, tokens: int) -> list[str]:
    """Think aloud for `tokens` tokens."""
    if not tokens:
        return []
    first, *rest = BANK[language].reasoning
    order = [first, *shuffled(digest, "reasoning", rest)]
    text = "".join(islice(cycle(order), tokens // 4 + 1))
    return pieces(text.replace("{topic}", topic or "…"))[:tokens]


# Only texts of the bank come here: the same few, over and over.
_length = lru_cache(1024)(count)


def _flourish(digest: bytes, phrases: Phrases) -> str:
    if draw(digest, "flourish", ONE_IN):
        return ""
    return str(getattr(phrases, pick(digest, "which flourish", FLOURISHES)))
