"""Lost claims: a router that hung for longer than a lease does nothing another one may do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from contract.flow import Event, Flow, Request
from contract.ports import Effects
from effects.model import says
from effects.stores import ClaimReply
from effects.testing import World
from effects.tools.fake import ScriptedTools
from router.problems import Problem
from router.serving.stream import CLAIM_LOST
from tests.support.clocks import now
from tests.support.pausing_flow import Ask, Desk, FlakyPauses, Options, Reply, looping

pytestmark = pytest.mark.virtual

AWAY_FROM, AWAY_UNTIL = 15, 45
RENEWED_AT = 50
"""Seconds after it was made at which a claim is renewed next, once the pauses are back."""


def hesitating(seconds: Mapping[str, int]) -> Flow:
    """Make a flow that lets so many seconds pass behind what it says."""

    async def flow(request: Request[Ask, Options], effects: Effects) -> AsyncIterator[Event]:
        async for event in looping(request, effects):
            yield event
            for _ in range(seconds.get(getattr(event, "content", ""), 0)):
                await effects.clock.now("waiting")
                await asyncio.sleep(1)

    return flow


class Hung:
    """A desk that goes on from a pause, and cannot renew its claim for longer than a lease."""

    def __init__(self, *, pays_after: int = 0, pays_for: int = 0, ends_after: int = 1) -> None:
        answers = {"book": "booked", "pay": "paid"}
        self.tools = ScriptedTools(answers, slow={"pay": pays_for}, writes=["pay"])
        world = World(says("Hello", " there"), tools=self.tools)
        self.desk = Desk(world, legacy=hesitating({"approve red": pays_after, "paid": ends_after}))

    async def goes_on(
        self, meanwhile: Callable[[str], Awaitable[Any]], leaves: int = -1
    ) -> tuple[Reply, str]:
        """Return what its client got, and the pause; `meanwhile` is called while it hangs."""
        hitl_id = await self.desk.answered()
        going_on = asyncio.create_task(self.desk.go_on(hitl_id, leaves))
        await asyncio.sleep(AWAY_FROM)
        self.desk.pauses.away = True
        await asyncio.sleep(AWAY_UNTIL - AWAY_FROM)
        await meanwhile(hitl_id)
        reply = await going_on
        await asyncio.sleep(1)
        return reply, hitl_id

    async def survivor_goes_on(self, hitl_id: str, leaves: int = -1) -> Reply:
        """Let another process go on: the locks of this one are over as well."""
        self.desk.pauses.away = False
        survivor = Desk(World(tools=self.tools), pauses=self.desk.pauses)
        return await survivor.go_on(hitl_id, leaves)

    async def other_is_turned_away(self, hitl_id: str) -> None:
        """Let another router claim it and find the session busy."""
        with pytest.raises(Problem) as told:
            await self.desk.go_on(hitl_id)
        assert told.value.code == "session_busy"
        self.desk.pauses.away = False


@pytest.mark.parametrize("seconds", [RENEWED_AT - 3, RENEWED_AT + 3])
async def test_what_somebody_else_has_done_is_not_done_again(seconds: int) -> None:
    """Neither before the one that hung has tried to renew its claim, nor after."""
    hung = Hung(pays_after=seconds)
    reply, _ = await hung.goes_on(hung.survivor_goes_on)
    assert reply.events[-1] == {"type": "done", "status": "failed"}
    assert hung.tools.called == ["book", "pay"]
    assert reply.stream is not None
    assert reply.stream.run.outcome is CLAIM_LOST


async def test_an_exchange_that_lost_its_claim_has_no_shadow() -> None:
    """It would be held against what no stack has done."""
    hung = Hung(pays_after=RENEWED_AT - 3)
    hung.desk.shadow = Decimal(100)
    reply, _ = await hung.goes_on(hung.survivor_goes_on)
    assert reply.said[-1] == "failed"
    told = {(line.state, line.reason) for line in hung.desk.router.ledger.counts}
    assert told == {("compared", "equal"), ("cancelled", "claim_lost")}


async def test_what_somebody_else_began_is_left_to_whoever_comes_next() -> None:
    """Though the claim is free: what was done meanwhile is known to the pause alone."""
    hung = Hung(pays_after=RENEWED_AT - 3)
    reply, hitl_id = await hung.goes_on(partial(hung.survivor_goes_on, leaves=1))
    assert reply.said[-1] == "failed"
    rest = await hung.desk.go_on(hitl_id)
    assert rest.said == ["approve red", "paid", "completed"]
    assert hung.tools.called == ["book", "pay"]


async def test_nothing_is_begun_while_nobody_can_say_whose_claim_it_is() -> None:
    """The next resumption does it, once."""
    hung = Hung(pays_after=RENEWED_AT + 3)
    reply, hitl_id = await hung.goes_on(lambda _: asyncio.sleep(0))
    assert reply.said[-1] == "failed"
    assert hung.tools.called == ["book"]
    hung.desk.pauses.away = False
    assert (await hung.desk.go_on(hitl_id)).said[-1] == "completed"
    assert hung.tools.called == ["book", "pay"]


@pytest.mark.parametrize(
    "hung",
    [
        lambda: Hung(pays_after=RENEWED_AT - 3),
        lambda: Hung(pays_after=RENEWED_AT + 3),
        lambda: Hung(ends_after=RENEWED_AT - 3),
    ],
    ids=["by a tool", "by the renewal", "by the end"],
)
async def test_a_claim_is_taken_back_from_whoever_could_not_go_on(hung: Callable[[], Hung]) -> None:
    """Nothing was done meanwhile: the client gets the rest."""
    it = hung()
    reply, hitl_id = await it.goes_on(it.other_is_turned_away)
    assert reply.said[-1] == "completed"
    with pytest.raises(Problem, match="finished"):
        await it.desk.go_on(hitl_id)
    assert it.tools.called == ["book", "pay"]


async def test_what_was_done_is_kept_though_somebody_else_had_the_claim() -> None:
    """When the client disconnects, too: the next resumption does not repeat it."""
    hung = Hung(pays_after=AWAY_FROM - 1, pays_for=RENEWED_AT - 2 - AWAY_FROM)
    reply, hitl_id = await hung.goes_on(hung.other_is_turned_away, leaves=2)
    assert reply.said[-1] == "paid"
    assert (await hung.desk.go_on(hitl_id)).said[-1] == "completed"
    assert hung.tools.called == ["book", "pay"]


class PassedBy(FlakyPauses):
    """FlakyPauses of a session that has a whole turn just when one of them is claimed."""

    async def claim(self, hitl_id: str, owner: str, lease_s: float) -> ClaimReply:
        """Take it; then the turn's first frame is there, and the session is free again."""
        reply = await super().claim(hitl_id, owner, lease_s)
        await self.expire_session("asking", "s")
        return reply


async def test_a_pause_that_a_turn_passed_by_is_not_gone_on_from() -> None:
    """Though the session is free: what would be said is no answer to what was said last."""
    tools = ScriptedTools({"book": "booked", "pay": "paid"})
    desk = Desk(World(says("Hello"), tools=tools), pauses=PassedBy(now))
    hitl_id = await desk.answered()
    assert await desk.refused(hitl_id) == (410, "expired")
    await asyncio.sleep(1)
    assert desk.world.count("tools.run") == 1
