"""The fence: a run that was replaced does nothing more, whenever it wakes."""

from __future__ import annotations

import asyncio

import pytest

from contract.errors import Fenced
from effects.model import says
from effects.testing import World
from tests.effects.tape.calls import TURN, asking, said, tool, turns
from tests.effects.tape.odd_ports import SlowStore

pytestmark = pytest.mark.virtual


async def test_after_the_fence_every_call_is_refused() -> None:
    """No port of a replaced run does anything any more, on the tape or off it."""
    world = World(says("Hi"))
    exchange = world.exchange()
    run = world.run(exchange)
    effects = run.effects()
    await effects.ids.new("reply")
    run.fence()
    calls = [
        effects.model.lookup("model", "m"),
        effects.tools.list("offer"),
        effects.tools.run("tool", tool("dice")),
        effects.conversations.put("message", TURN),
        effects.locks.acquire("message", "key", 60.0),
        effects.clock.now("prompt"),
        effects.ids.new("reply"),
        effects.human.answer("ask", "hitl-1"),
        said(effects),
    ]
    for call in calls:
        with pytest.raises(Fenced):
            await call
    assert world.made == [("ids.new", "reply")]
    await exchange.close()


async def test_a_stream_being_read_is_refused_after_the_fence() -> None:
    """A replaced run gets not one more item, also of what is there already."""
    world = World(says("one", "two", "three"))
    exchange = world.exchange()
    run = world.run(exchange)
    stream = run.effects().model.stream("reply", asking())
    assert (await anext(stream)).text == "one"
    run.fence()
    with pytest.raises(Fenced):
        await anext(stream)
    assert await said(world.run(exchange).effects()) == "onetwothree"
    await exchange.close()


async def test_a_run_that_sleeps_and_wakes_after_the_fence_is_refused() -> None:
    """A hung stack that comes back an hour later can no longer touch anything."""
    world = World()
    exchange = world.exchange()
    run = world.run(exchange)

    async def hanging() -> None:
        await asyncio.sleep(3_600.0)
        await run.effects().conversations.put("message", TURN)

    stack = asyncio.create_task(hanging())
    await turns()
    run.fence()
    await exchange.close()
    with pytest.raises(Fenced):
        await stack
    assert world.made == []


async def test_a_run_fenced_while_its_call_is_under_way_does_not_get_the_result() -> None:
    """The write is on the tape for the successor; the replaced run is refused."""
    world = World(conversations=SlowStore(2.0))
    exchange = world.exchange()
    run = world.run(exchange)
    writing = asyncio.create_task(run.effects().conversations.put("message", TURN))
    await turns()
    run.fence()
    with pytest.raises(Fenced):
        await writing
    assert await world.run(exchange).effects().conversations.put("message", TURN)
    assert world.count("conversations.put") == 1
    await exchange.close()
