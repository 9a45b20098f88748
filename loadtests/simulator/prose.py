"""Text in the language of the question and about its words, drawn from a bank of phrases.

Everything is drawn from the request's digest: the same request always draws the same.
"""

import re
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b, shake_128
from importlib.resources import files
from itertools import cycle, islice
from typing import Literal, TypeVar

import msgspec

from loadtests.simulator.request import count, pieces

Language = Literal["zh", "en"]
CHINESE = re.compile(r"[\u3400-\u9fff]")
CHINESE_RUN = re.compile(r"[\u3400-\u9fff]{2,}")
ANY_WORD = re.compile(r"[A-Za-z]+")
ENGLISH_WORD = re.compile(r"[A-Za-z][A-Za-z'-]{3,}")
ENGLISH_TOKEN = re.compile(r"[A-Za-z'-]+|\s|[^\sA-Za-z'-]+")
# Asking, pointing and joining words; what is left between them is what the question is about.
CHINESE_FILLER = re.compile(
    r"请问|请你|请|帮我|给我|怎么样|怎么办|怎么|怎样|什么|为什么|为何|如何|哪些|哪个|多少|可以|能不能|能否|是不是|有没有"
    r"|应该|需要|觉得|一下|一个|一些|这个|那个|这样|我们|你们|他们|自己|因为|所以|但是|不过|如果|然后|还是|就是|已经"
    r"|[我你他她它了吗呢吧啊呀是在有和与把被对也都很就要会想说用到给让]"
)
ENGLISH_FILLERS = """
about after again also because been before being both cannot could does doing each from give have
having help here into just know like make many maybe more most much need only other over please
really should some such tell than that that's their them then there these they thing things think
this those through want wants was were what what's when where which while will with would write
your you're it's don't i've i'm can't doesn't isn't explain
"""
ENGLISH_FILLER = frozenset(ENGLISH_FILLERS.split())
TOPIC_CHARACTERS = 10
TOPIC_WORDS = 3


def language_of(text: str) -> Language:
    """Chinese when there are at least as many Chinese characters as words, otherwise English."""
    characters = len(CHINESE.findall(text))
    return "zh" if characters and characters >= len(ANY_WORD.findall(text)) else "en"


def topic_of(text: str, language: Language) -> str:
    """The words of the question an answer takes up; empty when there are none."""
    return _chinese_topic(text) if language == "zh" else _english_topic(text)


def _chinese_topic(text: str) -> str:
    parts = CHINESE_RUN.findall(CHINESE_FILLER.sub(" ", text))
    return max((part.strip("的") for part in parts), key=len, default="")[:TOPIC_CHARACTERS]


def _english_topic(text: str) -> str:
    """Find the longest run of words with nothing but a space between them."""
    runs: list[list[str]] = [[]]
    for word in ENGLISH_TOKEN.findall(text):
        if ENGLISH_WORD.fullmatch(word) and word.lower() not in ENGLISH_FILLER:
            runs[-1].append(word)
        elif not word.isspace():
            runs.append([])
    return max((" ".join(run[-TOPIC_WORDS:]) for run in runs), key=len)


Item = TypeVar("Item")


def draw(digest: bytes, label: str, below: int) -> int:
    """Draw one of `0 … below - 1`; `label` keeps independent choices independent."""
    return int.from_bytes(blake2b(digest + label.encode(), digest_size=8).digest(), "big") % below


def pick(digest: bytes, label: str, options: Sequence[Item]) -> Item:
    """Draw one of the options."""
    return options[draw(digest, label, len(options))]


def shuffled(digest: bytes, label: str, options: Sequence[Item]) -> list[Item]:
    """Put all options into a drawn order."""
    keys = stream(digest, label, len(options))
    return [options[place] for place in sorted(range(len(options)), key=keys.__getitem__)]


def stream(digest: bytes, label: str, count: int) -> list[int]:
    """Draw `count` numbers of 16 bits."""
    raw = shake_128(digest + label.encode()).digest(2 * count)
    return [int.from_bytes(raw[place : place + 2], "big") for place in range(0, 2 * count, 2)]


def name(digest: bytes, label: str, length: int) -> str:
    """Draw an identifier of at most 40 hexadecimal digits."""
    return blake2b(digest + label.encode(), digest_size=20).hexdigest()[:length]


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
