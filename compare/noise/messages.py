"""Messages: captures of several places joined by message, each measured where it shows noise."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple
from zlib import compress, decompress

import msgspec

from compare.input.captures import Exchange, HalfExchanges, exchanges
from compare.input.damage import CapturesUnreadable, Damage
from compare.input.pairing import CANDIDATE, CONTROL
from compare.input.segments import find_segments, read_lines
from compare.input.selection import EVERYTHING, Selection
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


def read_noise(
    captures: str,
    again: Sequence[str],
    flows: Mapping[str, FlowSpec],
    margin: float = MARGIN,
    selection: Selection = EVERYTHING,
) -> Noise:
    """Measure noise in captures, with further legacy runs of the same messages in `again`.

    `selection` is of the exchanges in `captures`. Of these a few numbers per message stay in
    memory, of `again` `HELD_AT_MOST` runs. Raises `CapturesUnreadable`.
    """
    messages: list[MeasuredMessage] = []
    left_out: Counter[str] = Counter()
    checker = ControlChecker(flows)
    readers = {name: AnswerReader(spec) for name, spec in flows.items()}
    held: defaultdict[bytes, list[bytes]] = defaultdict(list)

    def read(places: Iterable[str], wanted: Selection = EVERYTHING) -> Iterator[Exchange]:
        for exchange in filter(wanted.holds, read_exchanges(places, left_out)):
            for pair in control_pairs(exchange):
                checker.add(pair)
            yield exchange

    count = 0
    for exchange in read(again):
        for run in exchange:
            if run.stack != CONTROL or not is_live(run):
                continue
            if count == HELD_AT_MOST:
                left_out["legacy run beyond those held"] += 1
                continue
            count += 1
            held[message_of(exchange)].append(compress(encode_run(run), 1))
    for exchange in read((captures,), selection):
        reader = readers.get(exchange[0].flow)
        if reader is None:
            left_out["unknown flow"] += 1
            continue
        others = (decode_run(decompress(line)) for line in held.pop(message_of(exchange), []))
        runs = live_runs((*exchange, *others))
        if isinstance(runs, TooFew):
            left_out[runs.reason] += 1
        else:
            messages.append(_measured(exchange[0], runs, reader))
    return Noise(study_of(messages, left_out, margin), checker.check)


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
    """Choose the runs that show noise; a run that was read twice counts once."""
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
    if len(legacy) <= 1:
        return TooFew("legacy did not ask the model twice")
    return LiveRuns(legacy, graph)


def _measured(named: RunRecord, runs: LiveRuns, reader: AnswerReader) -> MeasuredMessage:
    first, *again = map(reader.read, runs.legacy)
    graph = map(reader.read, runs.graph)
    return MeasuredMessage(
        named.exchange,
        named.flow,
        tuple(apart(first, other) for other in again),
        tuple(apart(first, other) for other in graph),
    )
