"""Captures as a replay reads them: parts of some whole exchanges, and recordings to play."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from compare.input.blobs import BlobMissing
from compare.input.captures import HELD_BYTES, Exchange, LineHead, head_of, lacks_a_run
from compare.input.damage import CapturesUnreadable, Damage
from compare.input.segments import CapturedLine, CaptureSegment, read_lines
from contract.blobs import Fetch, with_blobs
from contract.flow import FlowSpec, Request
from contract.records import RunRecord
from effects.tape import Tape

EXCHANGES = 128
LINE_BYTES = 1 << 23
BLOB_MISSING = "a blob is missing"
REST = "rest"
"""In the place of a segment: exchanges of which a run stands in none."""


@dataclass(frozen=True, slots=True)
class Part:
    """The `number`-th part of a segment; `read` is how much of all captures was read by then.

    `place` is a segment beside whose blobs those of the part are: its own, but for the `REST`.
    """

    segment: str
    number: int
    lines: tuple[CapturedLine | Damage, ...] = field(repr=False)
    read: int
    place: str

    @property
    def size(self) -> int:
        """Bytes of its lines: a segment that has grown since has another last part."""
        return _bytes(self.lines)


@dataclass(frozen=True, slots=True)
class ReplaySelection:
    """Which exchanges are replayed: these only (none named: all), so many at most."""

    only: frozenset[str] = frozenset()
    limit: int | None = None


_Lines = list[CapturedLine | Damage]


class _Half(NamedTuple):
    """Lines of an exchange of which a run is missing so far, and the segment of the first."""

    lines: _Lines
    place: str


class PartReader:
    """Splits segments into parts, with flat memory; calls back for one that cannot be opened.

    A part has so many `exchanges` at most. An exchange whose runs stand in several segments is in a
    part of the last of them.
    """

    def __init__(
        self,
        selection: ReplaySelection,
        on_unreadable: Callable[[CapturesUnreadable], None],
        exchanges: int | None = None,
    ) -> None:
        self._exchanges = exchanges or EXCHANGES
        self._only = selection.only
        self._left = selection.limit
        self._on_unreadable = on_unreadable
        self._read = 0
        self._halves: dict[str, _Half] = {}
        self._held = 0

    def parts(self, segments: Sequence[CaptureSegment]) -> Iterator[Part]:
        """Yield the parts of segments, in their order."""
        for segment in segments:
            if self._left == 0:
                return
            try:
                yield from self._segment(segment)
            except CapturesUnreadable as error:
                self._on_unreadable(error)

    def rest(self) -> Part:
        """Return the exchanges of which a run is in none of the parts, once all have been read."""
        halves = list(self._halves.values())[: self._left]
        lines = tuple(line for half in halves for line in half.lines)
        return Part(REST, 0, lines, self._read, halves[0].place if halves else "")

    def _segment(self, segment: CaptureSegment) -> Iterator[Part]:
        lines: _Lines = []
        exchanges = size = number = 0
        for exchange, group in self._groups(segment):
            if not exchange:
                lines += group
                continue
            if self._left == 0:
                break
            if exchanges == self._exchanges or size >= LINE_BYTES:
                yield Part(segment.url, number, tuple(lines), self._read, segment.url)
                lines, exchanges, size, number = [], 0, 0, number + 1
            lines += group
            exchanges += 1
            size += _bytes(group)
            if self._left is not None:
                self._left -= 1
        if lines:
            yield Part(segment.url, number, tuple(lines), self._read, segment.url)

    def _groups(self, segment: CaptureSegment) -> Iterator[tuple[str, _Lines]]:
        """Yield selected exchanges, and ("", …) for lines that belong to none."""
        exchange = ""

        def exchange_at(line: CapturedLine | Damage) -> str:
            nonlocal exchange
            exchange = _head_of(line).exchange or exchange
            return exchange

        for name, group in groupby(read_lines(segment, self._advance), exchange_at):
            if name and (not self._only or name in self._only):
                yield from self._joined(name, list(group), segment.url)
            elif others := [line for line in group if not _head_of(line).exchange]:
                yield "", others

    def _joined(self, name: str, group: _Lines, place: str) -> Iterator[tuple[str, _Lines]]:
        """Yield an exchange with what was held of it, or hold it where a run is missing."""
        if name in self._halves:
            half = self._halves.pop(name)
            self._held -= _bytes(half.lines)
            group, place = [*half.lines, *group], half.place
        heads = [_head_of(line) for line in group]
        shadow = next((head.shadow for head in heads if head.role == "serving"), "")
        if not lacks_a_run({head.role for head in heads if head.exchange}, shadow):
            yield name, group
            return
        if others := [line for line, head in zip(group, heads, strict=True) if not head.exchange]:
            yield "", others
            group = [line for line, head in zip(group, heads, strict=True) if head.exchange]
        self._halves[name] = _Half(group, place)
        self._held += _bytes(group)
        while self._held > HELD_BYTES and len(self._halves) > 1:
            oldest = next(iter(self._halves))
            lines = self._halves.pop(oldest).lines
            self._held -= _bytes(lines)
            yield oldest, lines

    def _advance(self, count: int) -> None:
        self._read += count


def _head_of(line: CapturedLine | Damage) -> LineHead:
    """Return the head of a line; an empty one for a broken one, which its reader reports."""
    return LineHead() if isinstance(line, Damage) else head_of(line.data)


def _bytes(lines: Iterable[CapturedLine | Damage]) -> int:
    return sum(len(line.data) for line in lines if isinstance(line, CapturedLine))


_BY_ROUTER = frozenset({"serving", "fallback"})


@dataclass(frozen=True, slots=True)
class Recording:
    """An exchange that can be replayed: its request, its tape, and the runs that were recorded.

    `last` is the run whose frames went to the client last; if it did not end its stream, the
    router did.
    """

    spec: FlowSpec
    request: Request[Any, Any]
    tape: Tape
    runs: Exchange
    serving: RunRecord
    last: RunRecord

    @property
    def redacted(self) -> bool:
        """Whether data was removed from it, so that no replay can produce the same frames."""
        return any(run.redacted for run in self.runs)


@dataclass(frozen=True, slots=True)
class Skipped:
    """An exchange that is not replayed; `unread`: what it should hold cannot be read."""

    reason: str
    unread: bool = False


def recording_of(
    exchange: Exchange, specs: Mapping[str, FlowSpec], fetch: Fetch, absent: Collection[str] = ()
) -> Recording | Skipped:
    """Load an exchange, or return why it cannot be replayed; replays among its runs are ignored.

    Flows that are `absent` are declared, and have no code here.
    """
    try:
        runs = tuple(with_blobs(run, fetch) for run in exchange if run.role != "replay")
    except BlobMissing:
        return Skipped(BLOB_MISSING, unread=True)
    serving = next((run for run in runs if run.role == "serving"), None)
    if serving is None:
        return Skipped("it has no serving run", unread=True)
    if serving.flow in absent:
        return Skipped(f"flow {serving.flow!r} is declared: its services are not here to run")
    if serving.flow not in specs:
        return Skipped(f"unknown flow {serving.flow!r}", unread=True)
    if any(run.outcome == "cancelled" for run in runs if run.role in _BY_ROUTER):
        return Skipped("cancelled")
    return _load(specs[serving.flow], runs, serving)


def _load(spec: FlowSpec, runs: Exchange, serving: RunRecord) -> Recording | Skipped:
    if serving.tape is None or serving.request is None:
        return Skipped("no tape")
    try:
        request = spec.request_of(serving.request)
    except msgspec.DecodeError:
        return Skipped("its request is none of today's", unread=True)
    try:
        tape = Tape.load(serving.tape)
    except msgspec.DecodeError:
        return Skipped("its tape is none of today's", unread=True)
    last = next(run for run in reversed(runs) if run.role in _BY_ROUTER)
    return Recording(spec, request, tape, runs, serving, last)
