"""Serving: a case on one stack, and its tape played to another; both as their records."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from contract.flows.chat import CHAT
from contract.records import VERSION, ErrorRecord, RunRecord, decode_run, encode_run
from cutover.selftest.case import FOREVER
from cutover.selftest.virtual_time import VirtualLoop
from cutover.selftest.world import World
from effects.tape import Tape, TapeSession
from router.serving.run import Order, Run, RunOutcome
from router.serving.stack import LocalStack
from rules.chat import lock_key

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from contract.flow import Flow
    from contract.records import Role
    from cutover.selftest.case import Case
    from router.stack import StackName

T = TypeVar("T")

HUNG_AFTER = 0.5
"""Virtual seconds a run on a finished tape may take: there is nothing to wait for."""

_HUNG = RunOutcome("timeout", "stack", ErrorRecord("replay_timeout"))
_NOTHING_LEFT = 1.0


def on_virtual_time(coroutine: Coroutine[object, object, T]) -> T:
    """Run a coroutine on a loop of its own whose clock jumps."""
    with asyncio.Runner(loop_factory=partial(VirtualLoop, _NOTHING_LEFT)) as runner:
        return runner.run(coroutine)


def stack_of(name: StackName, flow: Flow) -> LocalStack:
    """Name a flow of chat as a stack."""
    return LocalStack(name, {CHAT.name: flow}, f"{name} under test")


async def serve(stack: LocalStack, case: Case, name: str = "x-1") -> RunRecord:
    """Serve a case for real; the record holds the tape."""
    world = case.world()
    if case.locked:
        await world.live().locks.acquire("other", lock_key(case.body.message_id), FOREVER)
    exchange = world.exchange(Tape())
    drive = stack.drive(
        Order(CHAT, stack, case.request, "serving"), TapeSession(exchange, name), exchange.stamp
    )
    drive.start()
    if not await drive.gone(FOREVER):
        drive.dismiss(_HUNG)
        await drive.gone(FOREVER)
    await exchange.close()
    return _line(drive, name, "serving", exchange.tape)


async def play(stack: LocalStack, case: Case, serving: RunRecord) -> RunRecord:
    """Run a stack in the shadow of a run, on its tape, as it is written down."""
    exchange = World().exchange(Tape.load(serving.tape or ()))
    order = Order(CHAT, stack, case.request, "shadow")
    run = TapeSession(exchange, "shadow", "nearest")
    drive = stack.drive(order, run, exchange.stamp, strict=False)
    drive.start()
    if not await drive.gone(HUNG_AFTER):
        drive.dismiss(_HUNG)
        await drive.gone(HUNG_AFTER)
    await exchange.close()
    return _line(drive, serving.exchange, "shadow", None)


def _line(drive: Run, name: str, role: Role, tape: Tape | None) -> RunRecord:
    """Write a drive down as one line, and read it back as whoever compares would."""
    ending = drive.ending or RunOutcome("truncated")
    record = RunRecord(
        v=VERSION,
        exchange=name,
        flow=CHAT.name,
        role=role,
        stack=drive.stack,
        assigned=drive.stack,
        served=drive.stack,
        began=1,
        frames=tuple((frame.at, frame.data.decode()) for frame in drive.frames),
        outcome=ending.outcome,
        error=ending.error,
        tape=tape.record() if tape else None,
        plays=tuple(play.record() for play in drive.run.plays),
    )
    return decode_run(encode_run(record))
