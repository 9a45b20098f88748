"""Sorting: which runs of a message asked the model themselves, and which played a tape."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple
from zlib import compress, decompress

import msgspec

from compare.input.captures import CapturedExchange, Exchange, exchanges
from compare.input.damage import CapturesUnreadable, Damage
from compare.input.pairing import CANDIDATE, CONTROL, REPLAY, Pair
from compare.input.segments import find_segments, read_lines
from compare.noise.control import ControlCheck, ControlChecker
from compare.noise.distances import answer_of, apart
from compare.noise.study import MARGIN, MeasuredMessage, Study, study_of
from compare.streams.events import EventReader
from contract.flow import FlowSpec
from contract.operations import MODEL_STREAM
from contract.records import RunRecord, decode_run, encode_run

OnBytes = Callable[[int], None]


_ENDED = frozenset({"completed", "refused", "failed"})


class Sorted(NamedTuple):
    """The runs of one message that asked the model themselves."""

    legacy: tuple[RunRecord, ...]
    graph: tuple[RunRecord, ...]


class TooFew(NamedTuple):
    """Why a message says nothing about noise."""

    reason: str


def message_of(exchange: Exchange) -> bytes:
    """Name the message of an exchange: its flow and what was asked, else the exchange itself."""
    asked = next((bytes(run.request.body) for run in exchange if run.request), None)
    named = exchange[0].exchange.encode() if asked is None else asked
    return blake2b(b"\x1f".join((exchange[0].flow.encode(), named)), digest_size=16).digest()


def owning_tape(exchange: Exchange) -> Exchange:
    """Give every run of an exchange that names calls of the tape the tape itself."""
    tape = next((run.tape for run in exchange if run.tape is not None), None)
    return tuple(
        msgspec.structs.replace(run, tape=tape) if run.plays and run.tape is None else run
        for run in exchange
    )


def live(run: RunRecord) -> bool:
    """Whether every answer of a model came from the model.

    A run that lists no calls had no tape to play, unless it is a replay.
    """
    if run.role == REPLAY:
        return False
    if not run.plays:
        return True
    heard = [play.how for play in run.plays if _asks_model(play.port, play.op)]
    return bool(heard) and all(how == "live" for how in heard)


def _asks_model(port: str, op: str) -> bool:
    return (port, op) == (MODEL_STREAM.port, MODEL_STREAM.name)


def sort(runs: Iterable[RunRecord]) -> Sorted | TooFew:
    """Choose the runs that show noise; a run that was read twice counts once."""
    all_there = _once(runs)
    if not any(run.stack == CANDIDATE for run in all_there):
        return TooFew("no run of graph")
    once = [run for run in all_there if not _drifts(run)]
    if not any(run.stack == CANDIDATE for run in once):
        return TooFew("graph was told earlier answers of its own")
    legacy, graph = (
        tuple(run for run in once if run.stack == stack and live(run))
        for stack in (CONTROL, CANDIDATE)
    )
    if not graph:
        return TooFew("graph was played the model's answers")
    if len(legacy) < 2:  # noqa: PLR2004 (a pair)
        return TooFew("legacy did not ask the model twice")
    return Sorted(legacy, graph)


def _drifts(run: RunRecord) -> bool:
    """Whether a run was told other earlier answers than were served: it was asked otherwise."""
    return run.history is not None and run.history.other > 0


def _once(runs: Iterable[RunRecord]) -> list[RunRecord]:
    seen: set[object] = set()
    kept: list[RunRecord] = []
    for run in runs:
        name = (run.exchange, run.role, run.stack, run.began, run.frames)
        if run.outcome != "cancelled" and name not in seen:
            seen.add(name)
            kept.append(run)
    return kept


def control_pairs(exchange: Sequence[RunRecord]) -> Iterator[Pair]:
    """List the pairs of two legacy runs on one tape: each replay with the first run there was.

    What was taken out of a recording cannot be repeated: then only replays go together. A run that
    did not end by itself may have been ended by the clock, and one that took over began in the
    middle.
    """
    legacy = [
        run
        for run in _once(exchange)
        if run.stack == CONTROL and run.outcome in _ENDED and run.role != "fallback"
    ]
    recorded = [run for run in legacy if run.tape and live(run) and not run.redacted]
    played = [run for run in legacy if not live(run)]
    replays = [run for run in played if run.role == REPLAY]
    others = [run for run in played if run.role != REPLAY and not run.redacted]
    one_tape = (*recorded[:1], *others, *replays)
    for run in one_tape[1:]:
        first = one_tape[0]
        yield Pair(first.exchange, first.flow, first, run, first.tape or ())


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
            yield from _readable(exchanges(read_lines(segment, on_bytes), segment.url), left_out)
        except CapturesUnreadable:
            left_out[_FILE] += 1


def _readable(
    read: Iterable[CapturedExchange | Damage], left_out: Counter[str]
) -> Iterator[Exchange]:
    for one in read:
        if isinstance(one, Damage):
            left_out[_PART] += 1
        else:
            yield owning_tape(one.runs)


class _Work:
    """Measuring under way."""

    def __init__(self, flows: Mapping[str, FlowSpec]) -> None:
        self.messages: list[MeasuredMessage] = []
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


def _measured(named: RunRecord, chosen: Sorted, reader: EventReader) -> MeasuredMessage:
    first, *again = [answer_of(run, reader) for run in chosen.legacy]
    graph = [answer_of(run, reader) for run in chosen.graph]
    return MeasuredMessage(
        named.exchange,
        named.flow,
        tuple(apart(first, other) for other in again),
        tuple(apart(first, other) for other in graph),
    )
