"""Messages: captures of several places joined by message, each measured where it shows noise."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple, Self
from zlib import compress, decompress

import msgspec

from compare.input.captures import CapturedExchange, Exchange, HalfExchanges, exchanges
from compare.input.damage import CapturesUnreadable, Damage
from compare.input.pairing import CANDIDATE, CONTROL
from compare.input.segments import CaptureSegment, find_segments, read_lines, stretches
from compare.noise.control import (
    NO_CHECK,
    ControlCheck,
    ControlChecker,
    control_pairs,
    distinct,
    is_live,
    owning_tape,
)
from compare.noise.distances import AnswerReader, apart
from compare.noise.study import MARGIN, MeasuredMessage, Study, study_of
from compare.sharing import ALONE, Workers, at_work, can_send, in_order, processes_for
from contract.flow import FlowSpec
from contract.records import RunRecord, decode_run, encode_run

HELD_AT_MOST = 20_000
"""Runs of the other places that are held at once, compressed: some 3 kB each."""

OTHER_CODE: Final = "of other code than is in force"
OTHER_CODE_AGAIN: Final = "legacy run of other code than is in force"
_FILE, _PART = "file unreadable", "line or batch damaged"
_NOT_HELD: Final = "legacy run beyond those held"


class Noise(msgspec.Struct, frozen=True):
    """What captures show of noise: with live model calls, and without them, where none may be."""

    study: Study
    control: ControlCheck

    @property
    def unread(self) -> bool:
        """Whether there was something to read, and nothing of it could be."""
        left_out = self.study.left_out.keys()
        return not self.study.messages and bool(left_out) and left_out <= {_FILE, _PART}


class LiveRuns(NamedTuple):
    """The runs of one message that asked the model themselves."""

    legacy: tuple[RunRecord, ...]
    graph: tuple[RunRecord, ...]


class TooFew(NamedTuple):
    """Why a message shows nothing of noise."""

    reason: str


class OpenMessage(NamedTuple):
    """A message that runs in other places may complete: its digest, and its live runs, packed."""

    exchange: str
    flow: str
    message: bytes
    runs: tuple[bytes, ...]


@dataclass(slots=True)
class NoiseTally:
    """The messages of one part of captures that show noise, and why others do not.

    A few numbers are kept of a measured message, some 3 kB for each run of an open one.
    """

    measured: list[MeasuredMessage] = field(default_factory=list)
    open: list[OpenMessage] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def merge(self, other: NoiseTally) -> None:
        """Take in what another part shows."""
        self.measured += other.measured
        self.open += other.open
        self.left_out += other.left_out


class NoiseReader:
    """Measures the exchanges of captures as they pass by.

    With `joined`, messages stay open for runs of legacy in other places.
    """

    def __init__(self, flows: Mapping[str, FlowSpec], *, joined: bool) -> None:
        self._readers = {name: AnswerReader(spec) for name, spec in flows.items()}
        self._joined = joined
        self.tally = NoiseTally()

    def add(self, exchange: Exchange) -> None:
        """Take in an exchange, whose runs own the tape that they name calls of."""
        first = exchange[0]
        if first.flow not in self._readers:
            self.tally.left_out["unknown flow"] += 1
            return
        runs = live_runs(exchange)
        if isinstance(runs, TooFew):
            self.tally.left_out[runs.reason] += 1
        elif self._joined:
            packed = tuple(compress(encode_run(run), 1) for run in (*runs.legacy, *runs.graph))
            message = message_of(exchange)
            self.tally.open.append(OpenMessage(first.exchange, first.flow, message, packed))
        else:
            self.measure(first.exchange, first.flow, runs)

    def measure(self, exchange: str, flow: str, runs: LiveRuns) -> None:
        """Measure the live runs of a message, if they are enough."""
        if len(runs.legacy) <= 1:
            self.tally.left_out["legacy did not ask the model twice"] += 1
            return
        reader = self._readers[flow]
        first, *again = map(reader.read, runs.legacy)
        distances = [apart(first, other) for other in again]
        graph = [apart(first, other) for other in map(reader.read, runs.graph)]
        self.tally.measured.append(MeasuredMessage(exchange, flow, (*distances,), (*graph,)))


@dataclass(slots=True)
class _Shown:
    """What captures show of noise, or further places; what a part shows is small.

    `held` are runs of legacy, packed, with their messages; `halves` are exchanges of which a run
    may stand in another part.
    """

    tally: NoiseTally = field(default_factory=NoiseTally)
    control: ControlCheck = NO_CHECK
    held: list[tuple[bytes, bytes]] = field(default_factory=list)
    halves: list[CapturedExchange] = field(default_factory=list)

    def merge(self, other: _Shown) -> None:
        """Take in what another part shows, but for its halves."""
        self.tally.merge(other.tally)
        self.control = self.control.merged(other.control)
        room = HELD_AT_MOST - len(self.held)
        self.held += other.held[:room]
        self.tally.left_out[_NOT_HELD] += len(other.held[room:])


class _Reader:
    """Reads exchanges of captures, or with `again` of a further place, as `NoiseReader` does."""

    def __init__(self, flows: Mapping[str, FlowSpec], *, joined: bool, again: bool) -> None:
        self._noise = NoiseReader(flows, joined=joined)
        self._checker = ControlChecker(flows)
        self._again = again
        self.shown = _Shown(self._noise.tally)

    def add(self, exchange: Exchange) -> None:
        for pair in control_pairs(exchange):
            self._checker.add(pair)
        if not self._again:
            self._noise.add(exchange)
            return
        for run in exchange:
            if run.stack != CONTROL or not is_live(run):
                continue
            if len(self.shown.held) == HELD_AT_MOST:
                self.shown.tally.left_out[_NOT_HELD] += 1
                continue
            self.shown.held.append((message_of(exchange), compress(encode_run(run), 1)))

    def result(self, halves: Iterable[CapturedExchange] = ()) -> _Shown:
        self.shown.control = self._checker.check
        self.shown.halves = list(halves)
        return self.shown


def _read_part(
    part: CaptureSegment, flows: Mapping[str, FlowSpec], *, joined: bool, again: bool
) -> _Shown:
    """Read a segment, or a stretch of one; depends on nothing else."""
    reader, halves = _Reader(flows, joined=joined, again=again), HalfExchanges()
    for exchange in read_exchanges((part,), reader.shown.tally.left_out, halves):
        reader.add(exchange)
    return reader.result(halves.rest())


def _read(
    places: Iterable[str],
    flows: Mapping[str, FlowSpec],
    workers: Workers,
    on_bytes: Callable[[int], None],
    *,
    joined: bool = False,
    again: bool = False,
) -> _Shown:
    """Read places part by part, on workers if that is worth it; raises `CapturesUnreadable`."""
    segments = [segment for place in places for segment in find_segments(place)]
    parts = [part for segment in segments for part in stretches(segment)]
    work = partial(_read_part, flows=flows, joined=joined, again=again)
    count = processes_for(parts) if workers.count is None else workers.count
    if workers.executor is None and not can_send(work):
        count = 1
    total, halves = _Shown(), HalfExchanges()
    rest = _Reader(flows, joined=joined, again=again)
    with (
        at_work(Workers(workers.executor, count), __name__) as there,
        closing(in_order(work, parts, there)) as read,
    ):
        for part, shown in read:
            total.merge(shown)
            for whole in (one for half in shown.halves for one in halves.join(half)):
                rest.add(owning_tape(whole.runs))
            on_bytes(part.size)
    for whole in halves.rest():
        rest.add(owning_tape(whole.runs))
    total.merge(rest.result())
    return total


def _unseen(_: int) -> None: ...


class LegacyAgain:
    """Live runs of legacy in further places, held by message until captures take them."""

    def __init__(self, flows: Mapping[str, FlowSpec], shown: _Shown) -> None:
        self._flows = flows
        self._control = shown.control
        self._left_out = shown.tally.left_out
        self._held: defaultdict[bytes, list[bytes]] = defaultdict(list)
        for message, run in shown.held:
            self._held[message].append(run)

    @classmethod
    def read(
        cls,
        places: Iterable[str],
        flows: Mapping[str, FlowSpec],
        workers: Workers = ALONE,
        on_bytes: Callable[[int], None] = _unseen,
    ) -> Self:
        """Read all of them; holds up to `HELD_AT_MOST` runs. Raises `CapturesUnreadable`.

        `on_bytes` gets the size of each part that is read.
        """
        return cls(flows, _read(places, flows, workers, on_bytes, again=True))

    def noise(
        self,
        tally: NoiseTally,
        control: ControlCheck,
        margin: float = MARGIN,
        *,
        counts: Callable[[str], bool] = lambda _: True,
        code: str = "",
    ) -> Noise:
        """Return what captures show together with these places; once, for it takes what is held.

        Of the captures' exchanges those count that `counts` holds; with `code`, runs of legacy here
        with another fingerprint do not.
        """
        closing = NoiseReader(self._flows, joined=False)
        total = closing.tally
        total.left_out = tally.left_out + self._left_out
        for measured in tally.measured:
            if counts(measured.exchange):
                total.measured.append(measured)
            else:
                total.left_out[OTHER_CODE] += 1
        for one in tally.open:
            if not counts(one.exchange):
                total.left_out[OTHER_CODE] += 1
                continue
            again = [_unpacked(line) for line in self._held.pop(one.message, [])]
            kept = [run for run in again if not code or run.code in {"", code}]
            total.left_out[OTHER_CODE_AGAIN] += len(again) - len(kept)
            runs = live_runs((*map(_unpacked, one.runs), *kept))
            if isinstance(runs, TooFew):
                total.left_out[runs.reason] += 1
            else:
                closing.measure(one.exchange, one.flow, runs)
        checked = control.merged(self._control)
        return Noise(study_of(total.measured, +total.left_out, margin), checked)


def _unpacked(line: bytes) -> RunRecord:
    return decode_run(decompress(line))


def read_noise(
    captures: str,
    again: Sequence[str],
    flows: Mapping[str, FlowSpec],
    margin: float = MARGIN,
    workers: Workers = ALONE,
    on_bytes: Callable[[int], None] = _unseen,
) -> Noise:
    """Measure noise in captures, with further legacy runs of the same messages in `again`.

    `compare_captures` does so while it compares. `on_bytes` gets the size of each part that is
    read. However many workers, the result is the same. Raises `CapturesUnreadable`, `WorkerLost`.
    """
    further = LegacyAgain.read(again, flows, workers, on_bytes)
    shown = _read((captures,), flows, workers, on_bytes, joined=bool(again))
    return further.noise(shown.tally, shown.control, margin)


def read_exchanges(
    segments: Iterable[CaptureSegment], left_out: Counter[str], halves: HalfExchanges
) -> Iterator[Exchange]:
    """Yield the exchanges of segments, each run with the tape it names calls of.

    Those of which a run is missing are in `halves`. What cannot be read is counted in `left_out`.
    """
    for segment in segments:
        try:
            for read in exchanges(read_lines(segment), segment.url, halves):
                if isinstance(read, Damage):
                    left_out[_PART] += 1
                else:
                    yield owning_tape(read.runs)
        except CapturesUnreadable:
            left_out[_FILE] += 1


def message_of(exchange: Exchange) -> bytes:
    """Digest the message of an exchange: its flow and request, else the exchange's id."""
    request = next((bytes(run.request.body) for run in exchange if run.request), None)
    named = exchange[0].exchange.encode() if request is None else request
    return blake2b(b"\x1f".join((exchange[0].flow.encode(), named)), digest_size=16).digest()


def live_runs(runs: Iterable[RunRecord]) -> LiveRuns | TooFew:
    """Choose the runs that show noise; a run that was read twice counts once.

    Those of legacy may be fewer than two.
    """
    once = distinct(runs)
    if not any(run.stack == CANDIDATE for run in once):
        return TooFew("no run of graph")
    # Where other earlier answers were read than were served, another question was asked.
    once = [run for run in once if run.history is None or not run.history.other]
    if not any(run.stack == CANDIDATE for run in once):
        return TooFew("graph was told earlier answers of its own")
    legacy, graph = (
        tuple(run for run in once if run.stack == stack and is_live(run))
        for stack in (CONTROL, CANDIDATE)
    )
    if not graph:
        return TooFew("graph was played the model's answers")
    return LiveRuns(legacy, graph)
