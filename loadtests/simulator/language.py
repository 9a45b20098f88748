"""In which language a text asks, and about what."""

import re
from typing import Literal

Language = Literal["zh", "en"]
CHINESE = re.compile(r"[\u3400-\u9fff]")
CHINESE_RUN = re.compile(r"[\u3400-\u9fff]{2,}")
ANY_WORD = re.compile(r"[A-Za-z]+")
WORD = re.compile(r"[A-Za-z][A-Za-z'-]{3,}")
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
        if WORD.fullmatch(word) and word.lower() not in ENGLISH_FILLER:
            runs[-1].append(word)
        elif not word.isspace():
            runs.append([])
    return max((" ".join(run[-TOPIC_WORDS:]) for run in runs), key=len)
