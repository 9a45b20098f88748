"""One recorded exchange on one stack as it is now, with nothing live behind the tape."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import msgspec

from contract.errors import CutoverError
from contract.flows.declared import DeclaredFlow
from contract.operations import OPERATIONS, Operation
from contract.ports import Effects
from contract.records import VERSION, ErrorRecord, RunRecord
from cutover.replay.parts import Recording
from effects.tape import Entry, Exchange, NodeTimes, Tape, TapeSession
from router.serving.frames import candidate_limit
from router.serving.run import Run, RunRequest
from router.serving.stack import Stack
from router.stack import RunOutcome

Pace = Literal["full", "recorded"]
"""Whether a tape is played at once, or each item at the moment it was recorded."""
_SECOND = 1_000_000
_TIMEOUT = RunOutcome("timeout", "stack", ErrorRecord("replay_timeout"))
_CANCEL_SECONDS = 1.0
_LEAST_BYTES = 4 << 20
"""Bytes of frames that every replay may produce, as a shadow by default."""

AT_ONCE = 64
"""Exchanges played concurrently at the recorded pace, which is mostly waiting."""


class TapeClock:
    """The time on the tape: the moment of the newest item a run has received.

    At full pace frames and calls are stamped by it, so that equal replays are equal to the byte.
    """

    __slots__ = ("_us",)

    def __init__(self) -> None:
        self._us = 0

    def advance(self, at: int) -> None:
        """Advance to a moment, in microseconds since the exchange began; never back."""
        self._us = max(self._us, at)

    def seconds(self) -> float:
        """Return the time, plus half a microsecond against rounding down."""
        return (self._us + 0.5) / _SECOND


class ClockedSession(TapeSession):
    """A session on a finished tape that advances a clock with what it plays."""

    def __init__(self, exchange: Exchange, name: str, clock: TapeClock) -> None:
        super().__init__(exchange, name, "nearest")
        self._clock = clock

    async def call(self, operation: Operation, site: str, arguments: msgspec.Struct) -> Any:
        """Play a call that has one result; the clock moves on to its end."""
        number = len(self.plays)  # nothing runs between here and the note the call makes of itself
        try:
            return await super().call(operation, site, arguments)
        finally:
            self._advance_past(number)

    async def stream(
        self,
        operation: Operation,
        site: str,
        arguments: msgspec.Struct,
        args: bytes | None = None,
        normal: Callable[[bytes], bytes] | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Play a call that has many results; the clock moves on with each."""
        number = len(self.plays)
        async for item in super().stream(operation, site, arguments, args, normal):
            self._clock.advance(item.at)
            yield item
        self._advance_past(number)

    def _advance_past(self, number: int) -> None:
        entry = self.plays[number].entry if number < len(self.plays) else None
        if entry is not None:
            self._clock.advance(entry.ended)


class _Moment(NamedTuple):
    # An entry opens (`item` -1), gets an item, or ends.
    at: int
    entry: Entry
    item: int


class Feeder:
    """Records a tape again, each item at the moment it was recorded first."""

    def __init__(self, source: Tape) -> None:
        self.tape = Tape(limit=sys.maxsize)
        # Sorting keeps the order of what happens at one moment: entries open in their order.
        self._moments = sorted(_all_moments(source), key=lambda moment: moment.at)

    async def feed(self, exchange: Exchange) -> None:
        """Record on an exchange's clock; returns when the tape is complete."""
        fed: dict[int, Entry] = {}
        for moment in self._moments:
            left = moment.at - exchange.stamp()
            if left > 0:
                await asyncio.sleep(left / _SECOND)
            self._apply(moment, fed)
        self.tape.stop_recording()

    def _apply(self, moment: _Moment, fed: dict[int, Entry]) -> None:
        old = moment.entry
        if moment.item < 0:
            fed[old.seq] = self.tape.add(old.operation, old.site, old.args, old.at)
        elif moment.item < len(old.items):
            fed[old.seq].append(old.items[moment.item])
        else:
            fed[old.seq].close(old.end, old.ended, old.fault)


def _all_moments(source: Tape) -> Iterator[_Moment]:
    opened = 0
    for entry in source.entries:
        opened = max(opened, entry.at)
        yield from _moments(entry, opened)


def _moments(entry: Entry, at: int) -> Iterator[_Moment]:
    """List what happens to an entry; an item without a stamp comes with the entry's end."""
    yield _Moment(at, entry, -1)
    for index, item in enumerate(entry.items):
        at = max(at, getattr(item, "at", 0) or entry.ended)
        yield _Moment(at, entry, index)
    yield _Moment(max(at, entry.ended), entry, len(entry.items))


class LiveCall(CutoverError):
    """A replay made a live call."""

    def __init__(self, what: str) -> None:
        super().__init__(f"a replay made a live call: {what!r}")


class _NoPort:
    """Takes the place of a live port."""

    def __getattr__(self, name: str) -> Any:
        raise LiveCall(name)


NOTHING = Effects(
    **cast("dict[str, Any]", dict.fromkeys((port for port, _ in OPERATIONS), _NoPort())),
    trace=NodeTimes(),
)
"""Live ports of a replay: every call raises `LiveCall`."""


@dataclass(frozen=True, slots=True)
class PlayOptions:
    """The pace, and the seconds that a run may take beyond its tape.

    `declared` are flows of a configuration, beside the built-in ones: code of a team's own may have
    them.
    """

    pace: Pace = "full"
    seconds: float = 10.0
    declared: Mapping[str, DeclaredFlow] = field(default_factory=dict)

    @property
    def at_once(self) -> int:
        """How many exchanges are played concurrently."""
        return 1 if self.pace == "full" else AT_ONCE


@dataclass(frozen=True, slots=True)
class PlayResult:
    """The record of a replay; `lingers`: the stack runs on although it was cancelled."""

    record: RunRecord
    lingers: bool = False


async def play(
    recording: Recording, stack: Stack, options: PlayOptions, against: RunRecord | None
) -> PlayResult:
    """Run a stack on a recording; `against` is the recorded run it is compared with."""
    strict = against is not None and _was_strict(against)
    if options.pace == "full":
        run, ended = await _at_once(recording, stack, options.seconds, strict=strict)
    else:
        run, ended = await _as_recorded(recording, stack, options.seconds, strict=strict)
    if against is recording.last or _waits_like(against, run):
        _close(run)
    return PlayResult(_record(recording, stack, run), lingers=not ended)


async def _at_once(
    recording: Recording, stack: Stack, seconds: float, *, strict: bool
) -> tuple[Run, bool]:
    clock = TapeClock()
    # Never closed: it has made no call, so there is nothing to end.
    exchange = Exchange(NOTHING, recording.tape, monotonic=clock.seconds)
    session = ClockedSession(exchange, f"replay {stack.name}", clock)
    run = stack.new_run(_order(recording, stack), session, strict=strict)
    run.start()
    return run, await _finish(run, seconds)


async def _as_recorded(
    recording: Recording, stack: Stack, seconds: float, *, strict: bool
) -> tuple[Run, bool]:
    feeder = Feeder(recording.tape)
    exchange = Exchange(NOTHING, feeder.tape, monotonic=asyncio.get_running_loop().time)
    session = TapeSession(exchange, f"replay {stack.name}", "nearest")
    run = stack.new_run(_order(recording, stack), session, strict=strict)
    feeding = asyncio.create_task(feeder.feed(exchange), name="feed")
    run.start()
    try:
        return run, await _finish(run, seconds + recording.tape.last_stamp / _SECOND)
    finally:
        feeding.cancel()
        await asyncio.wait({feeding})


def _order(recording: Recording, stack: Stack) -> RunRequest:
    return RunRequest(
        recording.spec,
        stack.name,
        recording.request,
        "replay",
        exchange=recording.serving.exchange,
        total_limit=partial(_size_limit, recording),
    )


def _size_limit(recording: Recording) -> int:
    served = sum(len(text.encode()) for _, text in recording.last.frames)
    return candidate_limit(served, _LEAST_BYTES)


async def _finish(run: Run, seconds: float) -> bool:
    """Wait for the end, or cancel the run; False when the stack ignores that."""
    if await run.wait_stopped(seconds):
        return True
    run.fence(_TIMEOUT)
    return await run.wait_stopped(_CANCEL_SECONDS)


def _was_strict(against: RunRecord) -> bool:
    # The recorded run was stopped at the first event its grammar forbids: its replay is, too.
    code = against.error.code if against.error else ""
    return code == "grammar" and against.role != "shadow"


def _waits_like(against: RunRecord | None, run: Run) -> bool:
    # A shadow that waits for a human ends as the client's stream did.
    paused = run.outcome is not None and run.outcome.kind == "paused"
    return paused and against is not None and against.role == "shadow"


def _close(run: Run) -> None:
    """End a stream as the router does for a client, if the stack has not."""
    if not run.frames or run.complete or run.outcome is None:
        return
    last = run.last_event(len(run.frames) - 1)
    run.close(run.closing_frames(run.outcome, last, run.frames[-1].at))


def _record(recording: Recording, stack: Stack, run: Run) -> RunRecord:
    outcome = run.outcome
    return blank(
        recording,
        stack,
        outcome or RunOutcome("truncated"),
        dialect="" if run.spec.dialect is recording.spec.dialect else run.spec.dialect.name,
        frames=tuple((frame.at, frame.data.decode("utf-8", "replace")) for frame in run.frames),
        plays=tuple(play.record() for play in run.session.plays),
        nodes=run.session.trace.spent,
        run_us=run.session.trace.total,
    )


def blank(recording: Recording, stack: Stack, outcome: RunOutcome, **done: Any) -> RunRecord:
    """Return the record of a replay; `done` are the fields about what the stack did."""
    serving = recording.serving
    return RunRecord(
        v=VERSION,
        exchange=serving.exchange,
        flow=serving.flow,
        role="replay",
        stack=stack.name,
        assigned=serving.assigned,
        served=serving.served,
        bucket=serving.bucket,
        config=serving.config,
        code=stack.fingerprint,
        began=serving.began,
        outcome=outcome.kind,
        error=outcome.error,
        redacted=recording.redacted,
        **done,
    )
