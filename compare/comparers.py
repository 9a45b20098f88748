"""Comparers of one dialect: streams in normal form, one comparer for every set of names met."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from compare.comparison import Comparer
from compare.dialects import TimesAstray
from compare.dialects.normal import pieces_of
from compare.layers.timing import Times
from compare.pairs import Pair
from compare.rules import NO_RULES, Rules, Ruling

if TYPE_CHECKING:
    from compare.dialects import NormalStream, Spoken
    from compare.events import EventReader
    from compare.layers.frames import Chunking
    from contract.records import RunRecord

NAMES_REMEMBERED = 256


class Comparers:
    """Makes comparers of one dialect, and keeps them; `hits` counts what each rule has hit."""

    def __init__(self, spoken: Spoken, chunking: Chunking, rules: Rules) -> None:
        self._spoken = spoken
        self._chunking: Chunking = chunking
        self._rules = rules
        self._kept: dict[frozenset[str], Comparer] = {}
        self.hits: Counter[str] = Counter()

    def of(self, names: frozenset[str]) -> Comparer:
        """Give the comparer of streams in which these names are met."""
        known = self._kept.get(names)
        if known is not None:
            return known
        if len(self._kept) >= NAMES_REMEMBERED:
            self.forget()
        wire = self._spoken.wire(names)
        ruling = None
        if self._rules != NO_RULES:
            ruling = Ruling(self._rules, self._spoken.name, wire)
        made = self._kept[names] = Comparer(wire, self._chunking, ruling)
        return made

    def forget(self) -> None:
        """Let the comparers go; how often their rules hit is kept."""
        for comparer in self._kept.values():
            if comparer.ruling is not None:
                self.hits += comparer.ruling.hits
        self._kept.clear()

    def in_normal_form(self, pair: Pair) -> tuple[Pair, Comparer]:
        """Bring a captured pair into normal form, and give who compares it."""
        legacy, graph = self._stream(pair.control), self._stream(pair.candidate)
        control = msgspec.structs.replace(pair.control, frames=legacy.frames)
        candidate = msgspec.structs.replace(pair.candidate, frames=graph.frames)
        normal = Pair(pair.exchange, pair.flow, control, candidate, pair.tape)
        return normal, self.of(legacy.names | graph.names)

    def _stream(self, run: RunRecord) -> NormalStream:
        # The last frame of a stream may lack its blank line.
        frames = [(at, frame.encode() + b"\n\n") for at, frame in run.frames]
        file = self._spoken.file
        times = [at for at, frame in frames for _ in pieces_of(file, frame)]
        body = b"".join(frame for _, frame in frames)
        try:
            return self._spoken.normaliser.stream(body, times)
        except TimesAstray:
            return self._spoken.normaliser.stream(body)


def times_of(run: RunRecord, reader: EventReader) -> Times | None:
    """Say when a run in normal form sent its first event, its first text and its last event."""
    frames = run.frames
    if not frames:
        return None
    text = next((at for at, frame in frames if _says(reader, frame)), None)
    return Times(frames[0][0], text, frames[-1][0])


def _says(reader: EventReader, frame: str) -> bool:
    event = reader.read(frame)
    return event is not None and bool(event.text)
