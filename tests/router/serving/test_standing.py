"""Time in which the process stood still: it counts for no stack, no shadow and no model."""

from __future__ import annotations

import asyncio

import pytest

from effects.loop_time import counted_loop_time
from effects.testing.virtual_time import VirtualLoop
from router.stack import StackName
from tests.support.faulty_stacks import after, dawdle, hang
from tests.support.router_world import STALL, House, Rules
from tests.support.tool_replies import ASSIGNED, CASE, FLOWS, both, house, undisturbed

pytestmark = [pytest.mark.virtual, pytest.mark.slow]

STOOD = 12.0


def stop_soon(seconds: float) -> VirtualLoop:
    """Let the machine stand still for longer than a stack may."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.call_later(seconds, loop.stand_still, STOOD)
    return loop


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_stack_that_computes_meanwhile_is_not_stalled(assigned: StackName) -> None:
    """No takeover, and nothing counts against it."""
    whole = await undisturbed(assigned)
    computes = after(FLOWS[assigned], 4, dawdle(STALL / 2))
    async with house(assigned, computes) as made:
        loop = stop_soon(3.0)
        with counted_loop_time(loop.time):
            served = await made.ask()
    assert served.wire == whole
    assert [(run.role, run.outcome) for run in made.runs] == [("serving", "completed")]


async def test_a_stack_that_hangs_is_found_out_all_the_same() -> None:
    """After as long as it may, and what the machine stood still for."""
    hangs = after(FLOWS["graph"], 4, hang)
    async with both("graph", hangs, FLOWS["legacy"]) as made:
        loop = stop_soon(3.0)
        with counted_loop_time(loop.time):
            served = await made.ask()
    assert made.runs[0].outcome == "timeout"
    assert STALL + STOOD - 1 <= served.frames[4][0] <= 2 * STALL + STOOD


async def test_a_shadow_keeps_its_time() -> None:
    """It is compared, not timed out."""
    slow = after(FLOWS["graph"], 4, dawdle(5.0))
    with counted_loop_time(asyncio.get_running_loop().time):
        async with House(CASE, Rules(shadow=100, shadow_seconds=STOOD), graph=slow) as made:
            await made.client(CASE.body)
            stop_soon(2.0)
    assert made.states == {"compared(equal)": 1}
