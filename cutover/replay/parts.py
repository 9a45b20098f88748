"""Captures as a replay reads them: parts of some whole exchanges, and recordings to play."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import msgspec

from compare.input.blobs import BlobMissing
from compare.input.captures import Exchange
from compare.input.damage import ILLEGIBLE, CapturesUnreadable, Damage
from compare.input.segments import CapturedLine, CaptureSegment, read_lines
from contract.blobs import Fetch, with_blobs
from contract.flow import FlowSpec, Request
from contract.records import RunRecord
from effects.tape import Tape

EXCHANGES = 128
LINE_BYTES = 1 << 23
BLOB_MISSING = "a blob is missing"


@dataclass(frozen=True, slots=True)
class Part:
    """The `number`-th part of a segment; `read` is how much of all captures was read by then."""

    segment: str
    number: int
    lines: tuple[CapturedLine | Damage, ...] = field(repr=False)
    read: int

    @property
    def size(self) -> int:
        """Bytes of its lines: a segment that has grown since has another last part."""
        return sum(len(line.data) for line in self.lines if isinstance(line, CapturedLine))


@dataclass(frozen=True, slots=True)
class Selection:
    """Which exchanges are replayed: these only (none named: all), so many at most."""

    only: frozenset[str] = frozenset()
    limit: int | None = None


class _Head(msgspec.Struct):
    exchange: str = ""


_head = msgspec.json.Decoder(_Head)


class PartReader:
    """Splits segments into parts, with flat memory; calls back for one that cannot be opened."""

    def __init__(
        self, selection: Selection, on_unreadable: Callable[[CapturesUnreadable], None]
    ) -> None:
        self._only = selection.only
        self._left = selection.limit
        self._on_unreadable = on_unreadable
        self._read = 0

    def parts(self, segments: Sequence[CaptureSegment]) -> Iterator[Part]:
        """Yield the parts of segments, in their order."""
        for segment in segments:
            if self._left == 0:
                return
            try:
                yield from self._segment(segment)
            except CapturesUnreadable as error:
                self._on_unreadable(error)

    def _segment(self, segment: CaptureSegment) -> Iterator[Part]:
        lines: list[CapturedLine | Damage] = []
        exchanges = size = number = 0
        for exchange, group in self._groups(segment):
            if not exchange:
                lines += group
                continue
            if self._left == 0:
                break
            if exchanges == EXCHANGES or size >= LINE_BYTES:
                yield Part(segment.url, number, tuple(lines), self._read)
                lines, exchanges, size, number = [], 0, 0, number + 1
            lines += group
            exchanges += 1
            size += sum(len(line.data) for line in group if isinstance(line, CapturedLine))
            if self._left is not None:
                self._left -= 1
        if lines:
            yield Part(segment.url, number, tuple(lines), self._read)

    def _groups(self, segment: CaptureSegment) -> Iterator[tuple[str, list[CapturedLine | Damage]]]:
        """Yield selected exchanges, and ("", …) for lines that belong to none."""
        exchange = ""

        def exchange_at(line: CapturedLine | Damage) -> str:
            nonlocal exchange
            exchange = _exchange_of(line) or exchange
            return exchange

        for name, group in groupby(read_lines(segment, self._advance), exchange_at):
            if not self._only or name in self._only:
                yield name, list(group)
            elif others := [line for line in group if not _exchange_of(line)]:
                yield "", others

    def _advance(self, count: int) -> None:
        self._read += count


def _exchange_of(line: CapturedLine | Damage) -> str:
    """Return the exchange a line names, "" for a broken one, which its reader reports."""
    try:
        return "" if isinstance(line, Damage) else _head.decode(line.data).exchange
    except ILLEGIBLE:
        return ""


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
    exchange: Exchange, specs: Mapping[str, FlowSpec], fetch: Fetch
) -> Recording | Skipped:
    """Load an exchange, or return why it cannot be replayed; replays among its runs are ignored."""
    try:
        runs = tuple(with_blobs(run, fetch) for run in exchange if run.role != "replay")
    except BlobMissing:
        return Skipped(BLOB_MISSING, unread=True)
    serving = next((run for run in runs if run.role == "serving"), None)
    if serving is None:
        return Skipped("it has no serving run", unread=True)
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
