"""Distances: how far two runs of one message are apart, in text, tools and structure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Literal, NamedTuple, TypeVar
from unicodedata import normalize

import msgspec

from compare.input.damage import ILLEGIBLE
from compare.streams.dialects import flow_dialect
from compare.streams.events import EventReader, read_stream
from compare.streams.normal import TOOL_CALL
from contract.calls import calls_of
from contract.equality import EventStream
from contract.flow import FlowSpec
from contract.model import ToolCall
from contract.operations import TOOLS_RUN
from contract.records import RunRecord

T = TypeVar("T", bound="Hashable")

CELLS_AT_MOST = 1 << 29


def share_edited(one: Sequence[T], other: Sequence[T]) -> float:
    """Return the edit distance as a share of the longer sequence: 0 equal, 1 nothing in common.

    Sequences whose lengths multiply to over `CELLS_AT_MOST` are compared as bags of items, which
    gives the least the edit distance can be.
    """
    longer = max(len(one), len(other))
    if not longer:
        return 0.0
    left, right = _trimmed(one, other)
    if len(left) * len(right) > CELLS_AT_MOST:
        return bag_edits(left, right) / longer
    return edits(left, right) / longer


def _trimmed(one: Sequence[T], other: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Leave out what both begin and end with: it never costs an edit."""
    start, most = 0, min(len(one), len(other))
    while start < most and one[start] == other[start]:
        start += 1
    end = 0
    while end < most - start and one[-1 - end] == other[-1 - end]:
        end += 1
    return one[start : len(one) - end], other[start : len(other) - end]


def edits(one: Sequence[T], other: Sequence[T]) -> int:
    """Return the Levenshtein distance of two sequences.

    Bit-parallel, one row of the table in one integer: G. Myers, JACM 46 (1999), in the form of
    H. Hyyrö, A bit-vector algorithm for computing Levenshtein and Damerau edit distances (2003).
    """
    if not one or not other:
        return len(one) + len(other)
    places: dict[T, int] = {}
    for index, item in enumerate(one):
        places[item] = places.get(item, 0) | 1 << index
    mask, last, score = (1 << len(one)) - 1, 1 << (len(one) - 1), len(one)
    up, down = mask, 0
    for item in other:
        equal = places.get(item, 0)
        across = (((equal & up) + up) ^ up) | equal
        more = down | (~(across | up) & mask)
        less = up & across
        score += bool(more & last) - bool(less & last)
        more, less = (more << 1 | 1) & mask, less << 1 & mask
        kept = equal | down
        up, down = less | (~(kept | more) & mask), more & kept
    return score


def bag_edits(one: Sequence[T], other: Sequence[T]) -> int:
    """Return the least number of edits, whatever the order: a lower bound of `edits`."""
    shared = Counter(one) & Counter(other)
    return max(len(one), len(other)) - shared.total()


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


class MeasuredAnswer(NamedTuple):
    """What one run made of a message: tokens of its text, its tool calls, its events' names."""

    text: tuple[str, ...]
    tools: Counter[tuple[str, ...]]
    structure: tuple[str, ...]


class AnswerReader:
    """Reads runs of one flow: what each made of its message."""

    def __init__(self, flow: FlowSpec) -> None:
        self._reader = EventReader(flow)
        self._declared = flow_dialect(flow) if flow.declared else None

    def read(self, run: RunRecord) -> MeasuredAnswer:
        """Read a run; its tape, if its calls need one to be read, must be its own.

        Of a declared flow the stream says which tools were called, and pieces of a text are one.
        """
        stream = self.stream(run)
        if self._declared is None:
            called = tools(call.args for call in calls_of(run, ()) if call.label == _TOOL)
            names = [event.name for event in stream.events]
        else:
            shown = (event.data for event in stream.events if event.name == TOOL_CALL)
            called = Counter(feature for data in shown for feature in _shown_features(data))
            names = [event.name for event in stream.events if not event.bare]
        return MeasuredAnswer(tokens(stream.text), called, (*names, f"({run.outcome})"))

    def stream(self, run: RunRecord) -> EventStream:
        """Read what a run sent; raises `DialectNotConfigured`."""
        if self._declared is None:
            return read_stream(self._reader, run.frames)
        normal = self._declared.captured(run)
        return read_stream(EventReader(self._declared.wire(normal.names)), normal.frames)


def apart(one: MeasuredAnswer, other: MeasuredAnswer) -> Distances:
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


def _shown_features(data: str) -> list[tuple[str, ...]]:
    """Return the features of a tool call that stands in a stream, in normal form."""
    call = msgspec.json.decode(data)
    name, arguments = str(call.get("name", "")), call.get("arguments", "")
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return [(name,), *((name, *given) for given in _arguments(text))]


def _arguments(text: str) -> list[tuple[str, str]]:
    try:
        given = msgspec.json.decode(text)
    except ILLEGIBLE:
        return [("", text)]
    if not isinstance(given, dict):
        return [("", text)]
    return [(k, msgspec.json.encode(v, order="sorted").decode()) for k, v in given.items()]


def share_unlike(one: Counter[tuple[str, ...]], other: Counter[tuple[str, ...]]) -> float:
    """Return the share of what either bag holds that the other lacks (Ružička's distance)."""
    either = (one | other).total()
    return 1 - (one & other).total() / either if either else 0.0
