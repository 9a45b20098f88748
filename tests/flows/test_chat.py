"""The moments of what a graph streams, which golden tapes cannot show, and ids asked again."""

import asyncio

import pytest

from cutover import Exchange
from cutover.errors import Completed
from harness.root import equal_shadow
from loadtests.simulator import Answer
from router.exchange import Served, finish
from router.serve import serve
from rules.flows import FLOWS
from tests.support.stage import STACKS, Stage, Told, staged

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


@pytest.mark.parametrize("name", STACKS)
async def test_an_id_whose_exchange_has_ended_may_be_asked_again(stage: Stage, name: str) -> None:
    """The lock is for what is under way: the model is asked anew, but not for another message."""
    for asked in (1, 2):
        request = stage.request("chat", {"message_id": "m", "content": "Hello"})
        told = await stage.tell("chat", request, [name])
        assert (told.outcome, len(stage.sim.requests)) == (Completed(), asked)
    told = await stage.tell(
        "chat", stage.request("chat", {"message_id": "m", "content": "Bye"}), [name]
    )
    assert (told.refusal, len(stage.sim.requests)) == ((409, "message_conflict"), 2)
