"""The chat flow, told by both stacks."""

from __future__ import annotations

import asyncio

import pytest

from cutover import Exchange
from harness.root import equal_shadow
from loadtests.simulator import Answer
from router.exchange import Served, finish
from router.serve import serve
from rules.flows import FLOWS
from tests.flows.samples import SAMPLES
from tests.support.stage import Stage, Told, staged

pytestmark = pytest.mark.virtual

STACKS = ("legacy", "graph")
SUM = dict(SAMPLES["chat"].body)


@pytest.mark.parametrize("name", STACKS)
async def test_a_sum_is_worked_out(stage: Stage, name: str) -> None:
    """The events are those of the document: feedback for each tool, one success, one end."""
    told = await stage.tell("chat", stage.request("chat", SUM), [name])
    steps = [data["step"] for _, data in told.events]
    assert steps[:4] == ["ACCEPT", "START_REPLY", "SEND", "SEND"]
    assert [
        data["tool_call_feedback"] for _, data in told.events if "tool_call_feedback" in data
    ] == [{"tool": "calculate", "status": one} for one in ("running", "done")]
    assert steps[-2:] == ["SUCCESS", "END"]
    assert told.events[-2][1]["content"] == "12 * 7 is 84."
    for other in STACKS:
        assert equal_shadow(told.exchange, await stage.play(told, other))


@pytest.mark.parametrize("name", STACKS)
async def test_notice_is_appended_to_a_reply_that_was_cut(stage: Stage, name: str) -> None:
    """`length` appends its notice once, and the notice is part of the success."""
    stage.sim.script([Answer(text="Once upon", finish="length")])
    told = await stage.tell("chat", stage.request("chat", SUM), [name])
    assert told.events[-2][1] == {"step": "SUCCESS", "content": "Once upon(后续内容被截断)"}


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
