"""The opening frames do not wait for the engine."""

import asyncio
from typing import Any, cast

import pytest

from contract.flows.chat import Accept, ChatRequest, StartReply
from contract.model import Chunk
from effects.tape import TapeSession
from tests.flows.playing import FOREVER, STACKS, Case, begin

pytestmark = pytest.mark.virtual

GRAPH = STACKS["graph"]
CASE = Case(ChatRequest(message_id="m", content="x"), answers=((Chunk(text="t"),),))


def engines() -> int:
    """Count the engine's runs."""
    return sum(task.get_name() == "graph run" for task in asyncio.all_tasks())


async def test_who_waits_for_the_first_frame_has_it_before_the_engine_starts() -> None:
    """Both opening frames are there to be sent, and the conversation is still being laid out."""
    exchange = CASE.world().exchange()
    drive = begin(GRAPH, CASE, exchange)
    while not drive.frames:
        await drive.changed.wait()
    assert [frame.event for frame in drive.frames] == [Accept(), StartReply()]
    assert engines() == 0
    assert await drive.gone(FOREVER)
    await exchange.close()


async def test_who_leaves_after_the_opening_frames_has_started_no_engine() -> None:
    """It begins with what is asked for after them."""
    exchange = CASE.world().exchange()
    stream = cast("Any", GRAPH.flows["chat"](CASE.request, TapeSession(exchange, "left").effects()))
    assert [await anext(stream), await anext(stream)] == [Accept(), StartReply()]
    assert engines() == 0
    await stream.aclose()
    await exchange.close()
