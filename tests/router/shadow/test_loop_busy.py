"""A candidate that computes for long holds the loop: it is shed while requests are being served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Literal, cast

import msgspec
import pytest

from contract.flow import Event, Flow
from effects.testing.virtual_time import VirtualLoop
from router.shadow.sessions import HELD_SECONDS, HELD_SHARE, SLICE_SECONDS, LoopShare
from router.stack import StackName
from tests.support.router_world import House
from tests.support.tool_replies import ASSIGNED, CASE, FLOWS, both, other, undisturbed

pytestmark = [pytest.mark.virtual, pytest.mark.slow]

A_FRAME = 0.05
REQUESTS = 40


class Computing:
    """Computes for a while before each frame; `held` is for how long in all."""

    def __init__(self, flow: Flow, seconds: float) -> None:
        self.held = 0.0
        self._flow = flow
        self._seconds = seconds

    async def __call__(self, request: Any, effects: Any) -> AsyncIterator[Event]:
        """Run the flow."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        async with aclosing(cast("AsyncGenerator[Event]", self._flow(request, effects))) as events:
            async for event in events:
                loop.stand_still(self._seconds)
                self.held += self._seconds
                yield event


def computing(
    assigned: StackName, seconds: float, mode: Literal["replay", "tail"]
) -> tuple[House, Computing]:
    """Make a house whose candidate computes; its processor's time is the loop's."""
    candidate = Computing(FLOWS[other(assigned)], seconds)
    made = both(assigned, FLOWS[assigned], candidate, shadow=100, mode=mode)
    made.router.gate.processor = asyncio.get_running_loop().time
    return made, candidate


async def one_after_another(made: House, clients: int) -> None:
    """Ask as often, each a moment after the one before, so that many are served at a time."""
    asking = []
    for number in range(clients):
        body = msgspec.structs.replace(CASE.body, message_id=f"m{number}")
        asking.append(asyncio.create_task(made.client(body)))
        await asyncio.sleep(0.4)
    await asyncio.gather(*asking)


@pytest.mark.untraced
@pytest.mark.parametrize("assigned", ASSIGNED)
@pytest.mark.parametrize("mode", ["replay", "tail"])
async def test_a_candidate_that_holds_the_loop_is_shed_while_others_are_served(
    assigned: StackName, mode: Literal["replay", "tail"]
) -> None:
    """For a quarter of a second, and two hundredths of the time; the ledger says so."""
    made, candidate = computing(assigned, A_FRAME, mode)
    began = asyncio.get_running_loop().time()
    async with made:
        await one_after_another(made, REQUESTS)
        took = asyncio.get_running_loop().time() - began
        assert candidate.held <= HELD_SECONDS + took * HELD_SHARE + 3 * A_FRAME
    assert sum(made.states.values()) == REQUESTS
    assert made.states["dropped(loop_busy)"] > REQUESTS / 2
    assert {state.partition("(")[0] for state in made.states} <= {"dropped", "compared"}


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_one_that_computes_little_is_compared(assigned: StackName) -> None:
    """However many are served meanwhile."""
    made, _ = computing(assigned, SLICE_SECONDS / 4, "replay")
    async with made:
        await one_after_another(made, 8)
    assert made.states == {"compared(equal)": 8}


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_one_that_keeps_nothing_waiting_is_compared(assigned: StackName) -> None:
    """It may take its time while nothing is served."""
    made, candidate = computing(assigned, 10 * A_FRAME, "replay")
    async with made:
        assert (await made.ask()).wire == await undisturbed(assigned)
    assert made.states == {"compared(equal)": 1}
    assert candidate.held > 10 * HELD_SECONDS


def test_a_share_that_is_used_up_comes_back_as_a_whole() -> None:
    """Or each shadow would begin, and be shed after one frame."""
    share = LoopShare()
    share.take(HELD_SECONDS - 0.01, 0.0)
    assert not share.used_up(0.0)
    share.take(0.02, 0.0)
    assert share.used_up(0.0)
    whole = 0.01 / HELD_SHARE + HELD_SECONDS / HELD_SHARE
    assert share.used_up(whole - 0.1)
    assert not share.used_up(whole + 0.1)
    assert share.left == HELD_SECONDS
