"""Soundness: telling fast, before a stream is read whole, that it surely keeps its grammar."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from compare.streams.events import EventReader, Stamped
from contract.equality import StreamEvent
from contract.errors import GrammarViolated
from contract.grammar import Grammar, GrammarCheck

ORDERS_AT_MOST = 4_096


class StreamTimes(msgspec.Struct, frozen=True):
    """Microseconds since the exchange began; `text` is None when none was sent.

    `first` is the first event of any kind (TTFE), `text` the first event with text (TTFO),
    `end` the last event.
    """

    first: int
    text: int | None
    end: int


def times_of(frames: Sequence[Stamped], reader: EventReader) -> StreamTimes | None:
    """Find when a run sent its first event, its first text and its last event; None: nothing."""
    return RunTimes(reader).of(frames)


class RunTimes:
    """Finds the times of the runs of an exchange; a beginning that two of them share is read once.

    `_begins` are the frames of the last run up to its first text, `_first` the first event of them.
    """

    def __init__(self, reader: EventReader) -> None:
        self._reader = reader
        self._begins: list[str] = []
        self._first = 0

    def of(self, frames: Sequence[Stamped]) -> StreamTimes | None:
        """Find the times of a run, as `times_of` does."""
        begins = self._begins
        if not begins or [frame for _, frame in frames[: len(begins)]] != begins:
            if not self._read(frames):
                return None
            begins = self._begins
        text = frames[len(begins) - 1][0] if begins else None
        end = next(at for at, raw in reversed(frames) if raw[:1] != ":")
        return StreamTimes(frames[self._first][0], text, end)

    def _read(self, frames: Sequence[Stamped]) -> bool:
        """Read up to the first text; return whether there is any event."""
        first, self._begins = None, []
        for index, (_, frame) in enumerate(frames):
            event = self._reader.read(frame)
            if event is None:
                continue
            if first is None:
                first = self._first = index
            if event.text:
                self._begins = [frame for _, frame in frames[: index + 1]]
                break
        return first is not None


class Soundness:
    """Whether streams that ended are surely sound: names in a known order, texts that only grow.

    Orders of names found good are remembered. What is not sound here has to be read.
    """

    def __init__(self, reader: EventReader, grammar: Grammar) -> None:
        self._reader = reader
        self._grammar = grammar
        self._growing = grammar.growing
        self._orders: set[tuple[str, ...]] = set()

    def frames(self, frames: Sequence[Stamped]) -> bool:
        """Whether the frames of a run are sound; those that only add text are not read."""
        names: list[str] = []
        texts: dict[str, str] = {}
        sent = [frame for _, frame in frames]
        at = 0
        while at < len(sent):
            event = self._reader.read(sent[at])
            at += 1
            if event is None:
                continue
            if not self._grows(event, texts):
                return False
            names.append(event.name)
            if not event.text or (template := self._reader.template_of(sent[at - 1])) is None:
                continue
            added = template.count_added(sent, at)
            if added is None:
                return self.events(filter(None, self._reader.read_all(frames)))
            if added:
                names += [event.name] * added
                at += added - 1  # the last of them is read: its text is all of theirs
                names.pop()
        return self._in_order(tuple(names))

    def events(self, events: Iterable[StreamEvent]) -> bool:
        """Whether the events of a run are sound."""
        texts: dict[str, str] = {}
        names: list[str] = []
        growing = self._growing
        for event in events:
            name, text = event.name, event.text
            if event.fault is not None:
                return False
            names.append(name)
            if text is not None and (track := growing.get(name)) is not None:
                if not text.startswith(texts.get(track, "")):
                    return False
                texts[track] = text
        return self._in_order(tuple(names))

    def _grows(self, event: StreamEvent, texts: dict[str, str]) -> bool:
        if event.fault is not None:
            return False
        track = self._growing.get(event.name)
        if track is None or event.text is None:
            return True
        before, texts[track] = texts.get(track, ""), event.text
        return event.text.startswith(before)

    def _in_order(self, names: tuple[str, ...]) -> bool:
        if names in self._orders:
            return True
        check = GrammarCheck(self._grammar)
        try:
            for name in names:
                check.event(name)
        except GrammarViolated:
            return False
        if check.complete and len(self._orders) < ORDERS_AT_MOST:
            self._orders.add(names)
        return check.complete
