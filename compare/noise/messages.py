"""Messages: captures of several places joined by message, each measured where it shows noise."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple, Self
from zlib import compress, decompress

import msgspec

from compare.input.captures import Exchange, HalfExchanges, exchanges
from compare.input.damage import CapturesUnreadable, Damage
from compare.input.pairing import CANDIDATE, CONTROL
from compare.input.segments import find_segments, read_lines
from compare.noise.control import (
    ControlCheck,
    ControlChecker,
    control_pairs,
    distinct,
    is_live,
    owning_tape,
)
from compare.noise.distances import AnswerReader, apart
from compare.noise.study import MARGIN, MeasuredMessage, Study, study_of
from contract.flow import FlowSpec
from contract.records import RunRecord, decode_run, encode_run

HELD_AT_MOST = 20_000
"""Runs of the other places that are held at once, compressed: some 3 kB each."""

OTHER_CODE: Final = "of other code than is in force"
OTHER_CODE_AGAIN: Final = "legacy run of other code than is in force"
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


class LegacyAgain:
    """Live runs of legacy in further places, held by message until captures take them."""

    def __init__(self, flows: Mapping[str, FlowSpec]) -> None:
        self._flows = flows
        self._checker = ControlChecker(flows)
        self._held: defaultdict[bytes, list[bytes]] = defaultdict(list)
        self._left_out: Counter[str] = Counter()

    @classmethod
    def read(cls, places: Iterable[str], flows: Mapping[str, FlowSpec]) -> Self:
        """Read all of them; holds up to `HELD_AT_MOST` runs. Raises `CapturesUnreadable`."""
        found, count = cls(flows), 0
        for exchange in read_exchanges(places, found._left_out):
            for pair in control_pairs(exchange):
                found._checker.add(pair)
            for run in exchange:
                if run.stack != CONTROL or not is_live(run):
                    continue
                if count == HELD_AT_MOST:
                    found._left_out["legacy run beyond those held"] += 1
                    continue
                count += 1
                found._held[message_of(exchange)].append(compress(encode_run(run), 1))
        return found

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
        checked = control.merged(self._checker.check)
        return Noise(study_of(total.measured, +total.left_out, margin), checked)


def _unpacked(line: bytes) -> RunRecord:
    return decode_run(decompress(line))


def read_noise(
    captures: str,
    again: Sequence[str],
    flows: Mapping[str, FlowSpec],
    margin: float = MARGIN,
) -> Noise:
    """Measure noise in captures, with further legacy runs of the same messages in `again`.

    `compare_captures` does so while it compares. Raises `CapturesUnreadable`.
    """
    further = LegacyAgain.read(again, flows)
    reader, checker = NoiseReader(flows, joined=bool(again)), ControlChecker(flows)
    for exchange in read_exchanges((captures,), reader.tally.left_out):
        for pair in control_pairs(exchange):
            checker.add(pair)
        reader.add(exchange)
    return further.noise(reader.tally, checker.check, margin)


def read_exchanges(places: Iterable[str], left_out: Counter[str]) -> Iterator[Exchange]:
    """Yield the exchanges of several places, each run with the tape it names calls of.

    What cannot be read is counted in `left_out`. Raises `CapturesUnreadable`.
    """
    halves = HalfExchanges()
    for segment in (segment for place in places for segment in find_segments(place)):
        try:
            for read in exchanges(read_lines(segment), segment.url, halves):
                if isinstance(read, Damage):
                    left_out[_PART] += 1
                else:
                    yield owning_tape(read.runs)
        except CapturesUnreadable:
            left_out[_FILE] += 1
    yield from (owning_tape(read.runs) for read in halves.rest())


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
