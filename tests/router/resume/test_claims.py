"""Claims: who goes on from a pause keeps it, however slow he is or the pauses are, to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from contract.errors import EffectFailed, Fault
from contract.flow import Event, Request
from contract.ports import Effects
from effects.model import says
from effects.testing import World
from effects.tools.fake import ScriptedTools
from router.resume.claims import Claim
from router.resume.pauses import Pauses
from tests.router.resume.test_pauses import world
from tests.support.clocks import now
from tests.support.pausing_flow import Ask, Desk, Done, FlakyPauses, Options, looping

pytestmark = pytest.mark.virtual


async def claimed(desk: Desk, hitl_id: str) -> Claim:
    """Claim a pause that no exchange resumes."""
    pauses = Pauses(desk.pauses, 60.0, desk.now)
    return (await pauses.resume(desk.spec, hitl_id, "me", 1 << 20)).claim


async def test_a_claim_is_renewed_while_somebody_reads_slowly() -> None:
    """An exchange that takes longer than a lease keeps its claim."""
    desk = Desk(world())
    hitl_id = await desk.answered()
    claim = await claimed(desk, hitl_id)
    await asyncio.sleep(300)
    assert (await desk.refused(hitl_id))[1] == "continued_already"
    await claim.release()


async def test_a_claim_that_is_lost_is_renewed_no_more(caplog: pytest.LogCaptureFixture) -> None:
    """Its session was deleted, or another router resumed it: one log line."""
    desk = Desk(world())
    hitl_id = await desk.answered()
    claim = await claimed(desk, hitl_id)
    await desk.pauses.erase((), ("s",))
    await asyncio.sleep(300)
    assert caplog.text.count("lost") == 1
    assert not any(task.get_name() == "renew claim" for task in asyncio.all_tasks())
    await claim.release()


async def test_a_process_that_dies_going_on_leaves_what_was_done() -> None:
    """After its lease another router resumes it, and calls no tool again."""
    tools = ScriptedTools({"book": "booked", "pay": "paid"}, writes=["pay"])
    desk = Desk(World(says("Hello", " there"), tools=tools), legacy=lingering, graph=looping)
    hitl_id = await desk.answered()
    going_on = asyncio.create_task(desk.go_on(hitl_id))
    await asyncio.sleep(15)
    desk.pauses.away = True
    await asyncio.sleep(30)
    survivor = Desk(World(tools=tools), pauses=desk.pauses)  # the dead one's locks have expired
    desk.pauses.away = False
    rest = await survivor.go_on(hitl_id)
    assert rest.said == ["approve red", "paid", "completed"]
    assert tools.called == ["book", "pay"]
    going_on.cancel()
    await asyncio.gather(going_on, return_exceptions=True)


class Silent(FlakyPauses):
    """FlakyPauses whose ends cannot be kept for a while."""

    silent = True

    async def finish(self, hitl_id: str, owner: str) -> bool:
        """End a pause."""
        if self.silent:
            raise EffectFailed(Fault("store_unavailable", retryable=True))
        return await super().finish(hitl_id, owner)


async def test_the_end_is_kept_once_the_pauses_are_back() -> None:
    """What was done is not done again, and the claim blocks for no lease."""
    pauses = Silent(now)
    desk = Desk(world(), pauses=pauses)
    hitl_id = await desk.answered()
    going_on = asyncio.create_task(desk.go_on(hitl_id))
    await asyncio.sleep(5)
    pauses.silent = False
    assert (await going_on).said[-1] == "completed"
    assert (await desk.refused(hitl_id))[1] == "finished"


class Deaf(FlakyPauses):
    """FlakyPauses whose driver takes a while to renew, and swallows the cancellation of that."""

    async def renew(
        self, hitl_id: str, owner: str, lease_s: float, tape: bytes | None = None
    ) -> bool:
        """Extend a claim."""
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(5)
        return await super().renew(hitl_id, owner, lease_s, tape)


async def test_a_claim_that_is_given_back_stays_so(caplog: pytest.LogCaptureFixture) -> None:
    """Also where it was being renewed just then, and that goes on."""
    desk = Desk(world(), pauses=Deaf(now))
    hitl_id = await desk.answered()
    claim = await claimed(desk, hitl_id)
    await asyncio.sleep(12)
    await claim.release()
    await asyncio.sleep(1)
    pause = await desk.pauses.get(hitl_id)
    assert pause is not None
    assert pause.state == "answered"
    assert "lost" not in caplog.text


async def lingering(request: Request[Ask, Options], effects: Effects) -> AsyncIterator[Event]:
    """Stay for a while before the last frame."""
    async for event in looping(request, effects):
        if isinstance(event, Done):
            await asyncio.sleep(9)
            for _ in range(10):
                await effects.clock.now("waiting")
                await asyncio.sleep(9)
        yield event
