"""Distances: how far two runs of one message are apart, in text, tools and structure."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple
from unicodedata import normalize

import msgspec

from compare.calls import calls_of
from compare.damage import ILLEGIBLE
from compare.events import read_stream
from compare.noise.edits import share_edited
from contract.model import ToolCall
from contract.operations import TOOLS_RUN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compare.events import EventReader
    from contract.records import RunRecord

Measure = Literal["text", "tools", "structure"]
MEASURES: tuple[Measure, ...] = ("text", "tools", "structure")

# Scripts written without spaces count by the character: Thai to Khmer, kana, Chinese.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_TOKEN = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+|[^\w\s]")
_TOOL = TOOLS_RUN.label


class Distances(NamedTuple):
    """How far two runs are apart, each from 0 (equal) to 1 (nothing in common)."""

    text: float
    tools: float
    structure: float


class Answer(NamedTuple):
    """What one run made of a message: tokens of its text, its tool calls, its events' names."""

    text: tuple[str, ...]
    tools: Counter[tuple[str, ...]]
    structure: tuple[str, ...]


def answer_of(run: RunRecord, reader: EventReader) -> Answer:
    """Read a run; its tape, if its calls need one to be read, must be its own."""
    stream = read_stream(reader, run.frames)
    called = (call.args for call in calls_of(run, ()) if call.label == _TOOL)
    names = (*(event.name for event in stream.events), f"({run.outcome})")
    return Answer(tokens(stream.text), tools(called), names)


def apart(one: Answer, other: Answer) -> Distances:
    """Measure two answers; symmetric."""
    return Distances(
        share_edited(one.text, other.text),
        share_unlike(one.tools, other.tools),
        share_edited(one.structure, other.structure),
    )


def tokens(text: str) -> tuple[str, ...]:
    """Cut a text into words, or characters where words are not spaced; white space is dropped."""
    return tuple(_TOKEN.findall(normalize("NFC", text)))


def tools(called: Iterable[bytes]) -> Counter[tuple[str, ...]]:
    """Count what was called: each call by its name, and each of its arguments with its value."""
    return Counter(feature for args in called for feature in _features(args))


def _features(args: bytes) -> list[tuple[str, ...]]:
    try:
        call = msgspec.json.decode(args, type=ToolCall)
    except ILLEGIBLE:
        return [(args.decode("utf-8", "replace"),)]
    return [(call.name,), *((call.name, *given) for given in _arguments(call.arguments))]


def _arguments(text: str) -> list[tuple[str, str]]:
    try:
        given = msgspec.json.decode(text)
    except ILLEGIBLE:
        return [("", text)]
    if not isinstance(given, dict):
        return [("", text)]
    return [(k, msgspec.json.encode(v, order="sorted").decode()) for k, v in given.items()]


def share_unlike(one: Counter[tuple[str, ...]], other: Counter[tuple[str, ...]]) -> float:
    """Give the share of what either bag holds that the other lacks (Ružička's distance)."""
    either = (one | other).total()
    return 1 - (one & other).total() / either if either else 0.0
