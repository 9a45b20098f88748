"""Courtesy: what can wait leaves the loop to those who are served, and is not starved by them."""

from __future__ import annotations

import asyncio

import pytest

from contract import operations as ops
from contract.model import Chunk, ModelCall, UserMessage
from cutover.selftest.cases import case
from effects.tape import Exchange, Tape, canonical
from router.shadow.sessions import (
    NAP_SECONDS,
    PATIENCE_SECONDS,
    QUIET_SECONDS,
    IdleGate,
    ShadowSession,
)
from tests.support.clocks import now

pytestmark = pytest.mark.virtual

IDLE = case(0).world().live()  # never asked: everything is on the tape
CALL = ModelCall(model_id="m", messages=(UserMessage("Hello"),))


async def serving(gate: IdleGate, seconds: float) -> None:
    """Look at the clock of those who are served, twice in each hold."""
    until = now() + seconds
    while now() < until:
        gate.clock()
        await asyncio.sleep(QUIET_SECONDS / 2)


async def test_nobody_waits_while_nobody_is_served() -> None:
    """Before the first exchange, and once the hold is over."""
    gate = IdleGate(now)
    began = now()
    assert await gate.wait() == PATIENCE_SECONDS
    assert now() == began
    gate.clock()
    assert not gate.idle
    await asyncio.sleep(QUIET_SECONDS)
    assert gate.idle


async def test_work_stands_back_until_it_is_quiet() -> None:
    """And knows afterwards how much patience is left."""
    gate, began = IdleGate(now), now()
    busy = asyncio.create_task(serving(gate, 20 * NAP_SECONDS))
    await asyncio.sleep(0)
    left = await gate.wait()
    assert 20 * NAP_SECONDS <= now() - began <= 22 * NAP_SECONDS
    assert PATIENCE_SECONDS - left == pytest.approx(now() - began)
    await busy


async def test_a_loop_that_is_never_quiet_starves_nobody() -> None:
    """After its patience a run goes on, one turn at a time."""
    gate, began = IdleGate(now), now()
    busy = asyncio.create_task(serving(gate, 10.0))
    await asyncio.sleep(0)
    assert await gate.wait() <= 0
    assert now() - began == pytest.approx(PATIENCE_SECONDS, abs=NAP_SECONDS)
    busy.cancel()


def exchange_of(gate: IdleGate, chunks: int) -> Exchange:
    """Record one answer; the exchange goes by the clock of those who are served."""
    tape = Tape()
    entry = tape.add(ops.MODEL_STREAM, "reply", canonical(CALL), 0)
    for number in range(chunks):
        entry.append(Chunk(text=f"{number} "))
    entry.close("complete", chunks)
    tape.stop_recording()
    return Exchange(IDLE, tape, monotonic=gate.clock)


async def played(run: ShadowSession) -> list[float]:
    """Play the answer; returns the moment of each chunk."""
    return [now() async for _ in run.stream(ops.MODEL_STREAM, "reply", CALL)]


async def test_a_run_gives_way_after_every_item_until_its_patience_ends() -> None:
    """Each item waits for quiet; all of them together no longer than the patience."""
    gate = IdleGate(now)
    run = ShadowSession(exchange_of(gate, 300), "shadow", gate)
    began = now()
    busy = asyncio.create_task(serving(gate, 10.0))
    await asyncio.sleep(0)
    moments = await played(run)
    busy.cancel()
    assert len(moments) == 300
    assert moments[0] == began
    assert moments[-1] - began == pytest.approx(PATIENCE_SECONDS, abs=NAP_SECONDS)


async def test_what_a_run_does_is_no_sign_of_serving() -> None:
    """Or it would stand back for itself; its stamps are those of the exchange all the same."""
    gate = IdleGate(now)
    exchange = exchange_of(gate, 50)
    await asyncio.sleep(1.0)
    run = ShadowSession(exchange, "shadow", gate)
    began = now()
    assert await played(run) == [began] * 50
    assert gate.idle
    assert run.touched == run.stamp() == exchange.stamp() == 1_000_000
    assert not gate.idle
