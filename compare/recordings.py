"""Plain streams: recorded bodies of any dialect, compared side by side.

There is no tape: all that is compared is what stood on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compare.comparison import Comparers, times_of
from compare.input.damage import Damage
from compare.input.pairing import Pair
from compare.input.recordings import Recording, Recordings, pairs_of
from compare.layers.frames import Chunking
from compare.rules import NO_RULES, Rules
from compare.streams.dialects import Spoken
from compare.streams.events import EventReader
from compare.streams.normal import NormalStream, TimesAstray
from compare.tally import Tally, count_pair
from contract.records import VERSION, RunRecord

_SIDES = ("legacy", "graph")


@dataclass(frozen=True, slots=True)
class PlainQuestion:
    """What is asked of plain streams: their dialect, and what counts as a difference."""

    spoken: Spoken
    chunking: Chunking = "ignore"
    rules: Rules = NO_RULES


@dataclass(frozen=True, slots=True)
class _Read:
    """One side's recording, and its normal form."""

    recording: Recording
    stream: NormalStream


def compare_recordings(
    legacy: Recordings,
    graph: Recordings,
    question: PlainQuestion,
    on_bytes: Callable[[int], None] | None = None,
) -> Tally:
    """Compare what two places hold, pair by pair; what has no partner is counted.

    `on_bytes` is told of every body read. Raises `CapturesUnreadable`.
    """
    work = _Work(question, on_bytes)
    for damage in (*legacy.damage, *graph.damage):
        work.tally.damaged(damage)
    for old, new in pairs_of(legacy, graph):
        work.tally.exchanges += 1
        if old is None or new is None:
            lacking = "legacy" if old is None else "graph"
            work.tally.not_comparable.count(f"nothing of that id on the side of {lacking}")
        else:
            work.pair(old, legacy.read(old), graph.read(new))
    return work.done()


class _Work:
    """Comparing under way."""

    def __init__(self, question: PlainQuestion, on_bytes: Callable[[int], None] | None) -> None:
        self.tally = Tally()
        self._spoken = question.spoken
        self._on_bytes = on_bytes
        self._comparers = Comparers(question.spoken, question.chunking, question.rules)

    def done(self) -> Tally:
        """Give the tally, with how often each rule hit."""
        self._comparers.forget()
        self.tally.rule_hits += self._comparers.hits
        return self.tally

    def pair(self, name: str, legacy: Recording | Damage, graph: Recording | Damage) -> None:
        sides = self._both(legacy, graph)
        read = [side for side in sides if isinstance(side, _Read)]
        for side in sides:
            if isinstance(side, Damage):
                self.tally.damaged(side)
        if len(read) < len(sides):
            self.tally.not_comparable.count("damaged")
            return
        old, new = read
        control, candidate = (
            _run(self._spoken.name, name, stack, side)
            for stack, side in zip(_SIDES, read, strict=True)
        )
        pair = Pair(name, self._spoken.name, control, candidate, ())
        comparer = self._comparers.of(old.stream.names | new.stream.names)
        comparer.reader.begin()
        self.tally.seen(pair.began)
        for run, side in zip((control, candidate), read, strict=True):
            self._timed(run, side, comparer.reader)
        count_pair(self.tally, pair, comparer)

    def _both(
        self, legacy: Recording | Damage, graph: Recording | Damage
    ) -> tuple[_Read | Damage, _Read | Damage]:
        """Read both sides; equal ones once."""
        old = self._read(legacy)
        if not isinstance(old, _Read) or not isinstance(graph, Recording):
            return old, self._read(graph)
        if (old.recording.body, old.recording.times) != (graph.body, graph.times):
            return old, self._read(graph)
        self._told(graph)
        return old, _Read(graph, old.stream)

    def _told(self, side: Recording) -> None:
        if self._on_bytes is not None:
            self._on_bytes(len(side.body))

    def _read(self, side: Recording | Damage) -> _Read | Damage:
        if isinstance(side, Damage):
            return side
        self._told(side)
        try:
            return _Read(side, self._spoken.normaliser.stream(side.body, side.times))
        except TimesAstray as trouble:
            return Damage("broken", side.place, str(trouble))

    def _timed(self, run: RunRecord, side: _Read, reader: EventReader) -> None:
        times = times_of(run, reader) if side.recording.times else None
        if times is not None:
            self.tally.timed(run, times)


def _run(flow: str, name: str, stack: str, read: _Read) -> RunRecord:
    """Write a recorded stream down as a run; what a router would know of it is made up."""
    return RunRecord(
        v=VERSION,
        exchange=name,
        flow=flow,
        role="serving",
        stack=stack,
        assigned=stack,
        served=stack,
        began=read.recording.began,
        frames=read.stream.frames,
        outcome=read.stream.outcome,
        error=read.stream.error,
        sent=read.stream.sent,
    )
