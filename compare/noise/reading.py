"""Reading captures for noise: messages joined over several places, and pairs on one tape."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING
from zlib import compress, decompress

import msgspec

from compare.damage import CapturesUnreadable, Damage
from compare.events import EventReader
from compare.noise.control import ControlCheck, ControlChecker
from compare.noise.distances import answer_of, apart
from compare.noise.sorting import TooFew, control_pairs, live, message_of, owning_tape, sort
from compare.noise.study import MARGIN, Message, Study, study_of
from compare.pairs import CONTROL
from compare.reading import exchanges
from compare.segments import find_segments, read_lines
from contract.records import decode_run, encode_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from compare.noise.sorting import Sorted
    from compare.reading import Exchange
    from contract.flow import FlowSpec
    from contract.records import RunRecord

    OnBytes = Callable[[int], None]

KEPT_AT_MOST = 20_000
"""Runs of the other places that are held at once, compressed: some 3 kB each."""

_FILE, _PART = "file unreadable", "line or batch damaged"


class Noise(msgspec.Struct, frozen=True):
    """What captures show of noise: with live model calls, and without them, where none may be."""

    study: Study
    control: ControlCheck

    @property
    def unread(self) -> bool:
        """Whether there was something to read, and nothing of it could be."""
        left_out = self.study.left_out.keys()
        return not self.study.messages and bool(left_out) and left_out <= {_FILE, _PART}


def read_noise(
    captures: str,
    again: Sequence[str],
    flows: Mapping[str, FlowSpec],
    margin: float = MARGIN,
    on_bytes: OnBytes | None = None,
) -> Noise:
    """Measure noise in captures, with further legacy runs of the same messages in `again`.

    Of `captures` a few numbers per message stay in memory, of `again` `KEPT_AT_MOST` runs. Raises
    `CapturesUnreadable`.
    """
    work = _Work(flows)
    for place in again:
        for exchange in _read(place, work.left_out, on_bytes):
            work.keep(exchange)
    for exchange in _read(captures, work.left_out, on_bytes):
        work.take(exchange)
    return Noise(study_of(work.messages, work.left_out, margin), work.checker.check)


def _read(place: str, left_out: Counter[str], on_bytes: OnBytes | None) -> Iterator[Exchange]:
    for segment in find_segments(place):
        try:
            yield from _sound(exchanges(read_lines(segment, on_bytes), segment.url), left_out)
        except CapturesUnreadable:
            left_out[_FILE] += 1


def _sound(read: Iterable[Exchange | Damage], left_out: Counter[str]) -> Iterator[Exchange]:
    for one in read:
        if isinstance(one, Damage):
            left_out[_PART] += 1
        else:
            yield owning_tape(one)


class _Work:
    """Measuring under way."""

    def __init__(self, flows: Mapping[str, FlowSpec]) -> None:
        self.messages: list[Message] = []
        self.left_out: Counter[str] = Counter()
        self.checker = ControlChecker(flows)
        self._readers = {name: EventReader(spec) for name, spec in flows.items()}
        self._kept: defaultdict[bytes, list[bytes]] = defaultdict(list)
        self._room = KEPT_AT_MOST

    def keep(self, exchange: Exchange) -> None:
        """Hold the legacy runs of a message until the message itself comes."""
        self._check(exchange)
        for run in exchange:
            if run.stack != CONTROL or not live(run):
                continue
            if not self._room:
                self.left_out["legacy run beyond those held"] += 1
                continue
            self._room -= 1
            self._kept[message_of(exchange)].append(compress(encode_run(run), 1))

    def take(self, exchange: Exchange) -> None:
        """Measure a message."""
        self._check(exchange)
        reader = self._readers.get(exchange[0].flow)
        if reader is None:
            self.left_out["unknown flow"] += 1
            return
        kept = self._kept.pop(message_of(exchange), [])
        chosen = sort((*exchange, *(decode_run(decompress(line)) for line in kept)))
        if isinstance(chosen, TooFew):
            self.left_out[chosen.reason] += 1
        else:
            reader.begin()
            self.messages.append(_measured(exchange[0], chosen, reader))

    def _check(self, exchange: Exchange) -> None:
        for pair in control_pairs(exchange):
            self.checker.add(pair)


def _measured(named: RunRecord, chosen: Sorted, reader: EventReader) -> Message:
    first, *again = [answer_of(run, reader) for run in chosen.legacy]
    graph = [answer_of(run, reader) for run in chosen.graph]
    return Message(
        named.exchange,
        named.flow,
        tuple(apart(first, other) for other in again),
        tuple(apart(first, other) for other in graph),
    )
