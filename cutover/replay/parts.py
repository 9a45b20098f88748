"""Parts: captures cut into pieces of work, some whole exchanges of one segment each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from compare import CapturesUnreadable, Damage
from compare.input.damage import ILLEGIBLE
from compare.input.segments import CapturedLine, read_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from compare.input.segments import CaptureSegment

EXCHANGES = 128
LINE_BYTES = 1 << 23


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
class Wanted:
    """Which exchanges are wanted: these only (none named: all), so many at most."""

    only: frozenset[str] = frozenset()
    limit: int | None = None


class _Head(msgspec.Struct):
    exchange: str = ""


_head = msgspec.json.Decoder(_Head)


class Cutter:
    """Cuts segments into parts, with flat memory; what cannot be opened is told to `trouble`."""

    def __init__(self, wanted: Wanted, trouble: Callable[[CapturesUnreadable], None]) -> None:
        self._only = wanted.only
        self._left = wanted.limit
        self._trouble = trouble
        self._read = 0

    def parts(self, segments: Sequence[CaptureSegment]) -> Iterator[Part]:
        """Yield the parts of segments, in their order."""
        for segment in segments:
            if self._left == 0:
                return
            try:
                yield from self._segment(segment)
            except CapturesUnreadable as error:
                self._trouble(error)

    def _segment(self, segment: CaptureSegment) -> Iterator[Part]:
        lines: list[CapturedLine | Damage] = []
        exchanges = size = number = 0
        for group in self._groups(segment):
            if not group[0]:
                lines += group[1]
                continue
            if self._left == 0:
                break
            if exchanges == EXCHANGES or size >= LINE_BYTES:
                yield Part(segment.url, number, tuple(lines), self._read)
                lines, exchanges, size, number = [], 0, 0, number + 1
            lines += group[1]
            exchanges += 1
            size += sum(len(line.data) for line in group[1] if isinstance(line, CapturedLine))
            if self._left is not None:
                self._left -= 1
        if lines:
            yield Part(segment.url, number, tuple(lines), self._read)

    def _groups(self, segment: CaptureSegment) -> Iterator[tuple[str, list[CapturedLine | Damage]]]:
        """Yield exchanges that are wanted, and ("", …) for what belongs to none."""
        exchange = ""
        lines: list[CapturedLine | Damage] = []
        for line in read_lines(segment, self._advance):
            of = exchange if isinstance(line, Damage) else _exchange_of(line) or exchange
            if of != exchange:
                yield from self._wanted(exchange, lines)
                exchange, lines = of, []
            lines.append(line)
        yield from self._wanted(exchange, lines)

    def _wanted(
        self, exchange: str, lines: list[CapturedLine | Damage]
    ) -> Iterator[tuple[str, list[CapturedLine | Damage]]]:
        if self._only and exchange not in self._only:
            exchange, lines = "", [line for line in lines if not _of_a_run(line)]
        if lines:
            yield exchange, lines

    def _advance(self, count: int) -> None:
        self._read += count


def _of_a_run(line: CapturedLine | Damage) -> bool:
    return isinstance(line, CapturedLine) and bool(_exchange_of(line))


def _exchange_of(line: CapturedLine) -> str:
    """Give the exchange a line names, "" for one that is broken: its reader will say so."""
    try:
        return _head.decode(line.data).exchange
    except ILLEGIBLE:
        return ""
