"""Runs of the self-test: a case on one stack, its tape on the other, and how they compare."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import cache, partial
from typing import NamedTuple, TypeVar

from compare.comparison import Comparer
from compare.findings import kind_of
from compare.input.pairing import Unpaired, pair_of
from contract.equality import Chunking
from contract.errors import CutoverError
from contract.flow import Flow
from contract.flows import SPECS
from contract.flows.chat import CHAT
from contract.records import VERSION, ErrorRecord, Role, RunRecord, decode_run, encode_run
from cutover.selftest.cases import FOREVER, Scene
from effects.tape import Tape, TapeSession
from effects.testing import VirtualLoop, World
from router.serving.run import Run, RunRequest
from router.serving.stack import LocalStack
from router.stack import RunOutcome, StackName

T = TypeVar("T")

_REPLAY_LIMIT = 0.5
"""Virtual seconds for a run on a finished tape, on which nothing has to be waited for."""
_IDLE_GUARD = 1.0
_TIMEOUT = RunOutcome("timeout", "stack", ErrorRecord("replay_timeout"))


def on_virtual_time(coroutine: Coroutine[object, object, T]) -> T:
    """Run a coroutine to its end on a new loop whose clock jumps from timer to timer."""
    with asyncio.Runner(loop_factory=partial(VirtualLoop, _IDLE_GUARD)) as runner:
        return runner.run(coroutine)


def chat_stack(name: StackName, flow: Flow) -> LocalStack:
    """Return a stack that has one flow, chat."""
    return LocalStack(name, {CHAT.name: flow}, f"{name} under test")


async def serve(stack: LocalStack, case: Scene, exchange_id: str = "x-1") -> RunRecord:
    """Serve a case live; the record holds the tape."""
    world = case.world()
    if case.taken:
        await world.live().locks.acquire("other", case.taken, FOREVER)
    exchange = world.exchange(Tape())
    session = TapeSession(exchange, exchange_id)
    run = stack.new_run(RunRequest(case.spec, stack.name, case.request, "serving"), session)
    await _finish(run, FOREVER)
    await exchange.close()
    return _record(run, exchange_id, "serving", exchange.tape)


async def shadow(stack: LocalStack, case: Scene, serving: RunRecord) -> RunRecord:
    """Run a stack on the tape of a serving run."""
    exchange = World().exchange(Tape.load(serving.tape or ()))
    order = RunRequest(case.spec, stack.name, case.request, "shadow")
    run = stack.new_run(order, TapeSession(exchange, "shadow", "nearest"), strict=False)
    await _finish(run, _REPLAY_LIMIT)
    await exchange.close()
    return _record(run, serving.exchange, "shadow", None)


async def _finish(run: Run, seconds: float) -> None:
    run.start()
    if not await run.wait_stopped(seconds):
        run.fence(_TIMEOUT)
        await run.wait_stopped(seconds)


def _record(run: Run, exchange_id: str, role: Role, tape: Tape | None) -> RunRecord:
    """Encode and decode the record, so that what is compared is what a capture would hold."""
    outcome = run.outcome or RunOutcome("truncated")
    record = RunRecord(
        v=VERSION,
        exchange=exchange_id,
        flow=run.spec.name,
        role=role,
        stack=run.stack,
        assigned=run.stack,
        served=run.stack,
        began=1,
        frames=tuple((frame.at, frame.data.decode()) for frame in run.frames),
        outcome=outcome.kind,
        error=outcome.error,
        tape=tape.record() if tape else None,
        plays=tuple(play.record() for play in run.session.plays),
    )
    return decode_run(encode_run(record))


class Cause(NamedTuple):
    """A finding that is no consequence of another one."""

    layer: str
    kind: str
    path: str

    def __str__(self) -> str:
        """Return `layer: kind at path`."""
        return f"{self.layer}: {self.kind} at {self.path}"


class NotAPair(CutoverError):
    """Two runs the self-test made cannot be compared."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the self-test made two runs that are no pair: {reason!r}")


@cache
def _comparer(flow: str, chunking: Chunking) -> Comparer:
    return Comparer(SPECS[flow], chunking)


def causes(runs: tuple[RunRecord, ...], chunking: Chunking = "tape") -> tuple[Cause, ...]:
    """Compare the two runs of an exchange; raises `NotAPair`."""
    pair = pair_of(runs)
    if isinstance(pair, Unpaired):
        raise NotAPair(pair.reason)
    found = _comparer(pair.flow, chunking).compare(pair)
    return tuple(Cause(f.layer, kind_of(f), f.path) for f in found if f.after is None)
