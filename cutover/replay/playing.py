"""Playing: one recorded exchange on one stack as it is now, with nothing live behind the tape."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from contract.errors import CutoverError
from contract.ports import Effects
from contract.records import VERSION, ErrorRecord, RunRecord
from cutover.replay.pace import ClockedRun, Feeder, Pace, TapeClock
from effects.tape import Exchange, NodeTimes, TapeSession
from router.serving.failure import closing_frames
from router.serving.run import Order, Run, RunOutcome

if TYPE_CHECKING:
    from cutover.replay.recording import Recording
    from router.serving.stack import LocalStack

_HUNG = RunOutcome("timeout", "stack", ErrorRecord("replay_timeout"))
_LETS_GO = 1.0
_SECOND = 1_000_000

AT_ONCE = 64
"""Exchanges side by side where most of the time is waiting: at the recorded pace."""


class NothingThere(CutoverError):
    """A replay reached for the world."""

    def __init__(self, what: str) -> None:
        super().__init__(f"a replay asked the world for {what!r}")


class _Nothing:
    """Stands where a live port would be."""

    def __getattr__(self, name: str) -> Any:
        raise NothingThere(name)


_PORTS = ("model", "tools", "memory", "conversations", "locks", "clock", "ids", "human")
NOTHING = Effects(
    **cast("dict[str, Any]", dict.fromkeys(_PORTS, _Nothing())),
    trace=NodeTimes(),
)
"""The world behind a replay."""


@dataclass(frozen=True, slots=True)
class How:
    """How an exchange is played: the pace, and how many seconds beyond the tape it may take."""

    pace: Pace = "full"
    seconds: float = 10.0

    @property
    def at_once(self) -> int:
        """How many exchanges are played side by side."""
        return 1 if self.pace == "full" else AT_ONCE


@dataclass(frozen=True, slots=True)
class Played:
    """A replay that is over; `lingers` when the stack goes on although it was cancelled."""

    record: RunRecord
    lingers: bool = False


async def play(
    recording: Recording, stack: LocalStack, how: How, against: RunRecord | None
) -> Played:
    """Run a stack on a recording; `against` is the recorded run it is to be compared with."""
    strict = against is not None and _was_strict(against)
    if how.pace == "full":
        drive, ended = await _at_once(recording, stack, how.seconds, strict=strict)
    else:
        drive, ended = await _as_recorded(recording, stack, how.seconds, strict=strict)
    if against is recording.last or _waits_like(against, drive):
        _close(recording, drive)
    return Played(_record(recording, stack, drive), lingers=not ended)


async def _at_once(
    recording: Recording, stack: LocalStack, seconds: float, *, strict: bool
) -> tuple[Run, bool]:
    clock = TapeClock()
    # Never closed: it has made no call, so there is nothing to end.
    exchange = Exchange(NOTHING, recording.tape, monotonic=clock.seconds)
    run = ClockedRun(exchange, f"replay {stack.name}", clock)
    drive = stack.drive(_order(recording, stack), run, exchange.stamp, strict=strict)
    drive.start()
    return drive, await _over(drive, seconds)


async def _as_recorded(
    recording: Recording, stack: LocalStack, seconds: float, *, strict: bool
) -> tuple[Run, bool]:
    feeder = Feeder(recording.tape)
    exchange = Exchange(NOTHING, feeder.tape, monotonic=asyncio.get_running_loop().time)
    run = TapeSession(exchange, f"replay {stack.name}", "nearest")
    drive = stack.drive(_order(recording, stack), run, exchange.stamp, strict=strict)
    feeding = asyncio.create_task(feeder.feed(exchange), name="feed")
    drive.start()
    try:
        return drive, await _over(drive, seconds + recording.tape.last_stamp / _SECOND)
    finally:
        feeding.cancel()
        await asyncio.wait({feeding})


def _order(recording: Recording, stack: LocalStack) -> Order:
    return Order(recording.spec, stack, recording.request, "replay")


async def _over(drive: Run, seconds: float) -> bool:
    """Wait for the end, or put one to it; False when the stack does not let go."""
    if await drive.gone(seconds):
        return True
    drive.dismiss(_HUNG)
    return await drive.gone(_LETS_GO)


def _was_strict(against: RunRecord) -> bool:
    """Whether the recorded run was stopped at the first event its grammar does not allow.

    What is compared with it is stopped there too: the rest of the stream is not on record.
    """
    code = against.error.code if against.error else ""
    return code == "grammar" and against.role != "shadow"


def _waits_like(against: RunRecord | None, drive: Run) -> bool:
    """Whether a stream is ended as a shadow's is that waits for a human: as the client's was."""
    paused = drive.ending is not None and drive.ending.outcome == "paused"
    return paused and against is not None and against.role == "shadow"


def _close(recording: Recording, drive: Run) -> None:
    """End a stream as the router did for the client, where the stack has not."""
    if not drive.frames or drive.complete or drive.ending is None:
        return
    last = drive.frames[-1]
    drive.frames += closing_frames(
        recording.spec, recording.request, drive.ending, last.event, last.at
    )


def _record(recording: Recording, stack: LocalStack, drive: Run) -> RunRecord:
    ending = drive.ending
    return blank(
        recording,
        stack,
        ending or RunOutcome("truncated"),
        frames=tuple((frame.at, frame.data.decode()) for frame in drive.frames),
        plays=tuple(play.record() for play in drive.run.plays),
        nodes=drive.run.trace.spent,
    )


def blank(recording: Recording, stack: LocalStack, ending: RunOutcome, **done: Any) -> RunRecord:
    """Write a replay down; `done` are the fields that say what the stack did."""
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
        outcome=ending.outcome,
        error=ending.error,
        redacted=recording.redacted,
        **done,
    )
