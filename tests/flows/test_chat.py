"""The moments of what a graph streams, as golden tapes cannot show them."""

import asyncio

import pytest

from cutover import Exchange
from harness.root import equal_shadow
from loadtests.simulator import Answer
from router.exchange import Served, finish
from router.serve import serve
from rules.flows import FLOWS
from tests.support.stage import Told, staged

pytestmark = pytest.mark.virtual


@pytest.mark.slow
async def test_a_graph_that_plays_stamps_its_text_as_it_came() -> None:
    """As the tape has it, although all of the answer is there at once."""
    async with staged(chunk_ms=90) as slow:
        slow.sim.script([Answer(text="One, two, three, four, five, six.")])
        body = {"message_id": "m", "content": "Hello"}
        told = await slow.tell("chat", slow.request("chat", body, yield_interval=0.0), ["legacy"])
        played = await slow.play(told, "graph")
    served = told.exchange.runs[-1].frames
    late = [at - due for (at, _), (due, _) in zip(played.driver.frames, served, strict=True)]
    assert max(late) <= 200_000
    assert played.driver.frames[-1][0] >= 1_000_000


@pytest.mark.slow
async def test_a_graph_that_waits_for_its_client_holds_nothing_back() -> None:
    """It runs ahead meanwhile; what goes out bears the moment of what it was made of."""
    async with staged(chunk_ms=90) as slow:
        slow.sim.script([Answer(text="One, two, three, four, five, six.")])
        request = slow.request("chat", {"message_id": "m", "content": "Hello"}, yield_interval=0.0)
        served = Served("e", FLOWS["chat"], request, Exchange(), "graph")
        frames = serve(served, [slow.candidate("chat", "graph")], slow.pauses.pause)
        async for _ in frames:
            await asyncio.sleep(0.5)
        await finish(served)
        assert equal_shadow(served, await slow.play(Told(served=served), "legacy"))
