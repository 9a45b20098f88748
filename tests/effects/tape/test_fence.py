"""Fence and takeover: a fenced run does nothing more, and its successor goes on."""

from __future__ import annotations

import asyncio

import pytest

from contract.errors import Fenced
from effects.model import says
from effects.testing import World
from effects.tools.fake import ScriptedTools
from tests.support.tape_calls import TURN, SlowStore, asking, chunks, live, said, tool, turns

pytestmark = pytest.mark.virtual


async def test_after_the_fence_every_call_is_refused() -> None:
    """No port of a fenced run does anything, on the tape or off it."""
    async with live(World(says("Hi"))) as it:
        effects = it.effects
        await effects.ids.new("reply")
        it.run.fence()
        for call in (
            effects.model.lookup("model", "m"),
            effects.tools.list("offer"),
            effects.tools.run("tool", tool("dice")),
            effects.conversations.put("message", TURN),
            effects.locks.acquire("message", "key", 60.0),
            effects.clock.now("prompt"),
            effects.ids.new("reply"),
            effects.human.answer("ask", "hitl-1"),
            said(effects),
        ):
            with pytest.raises(Fenced):
                await call
        assert it.world.made == [("ids.new", "reply")]


async def test_a_stream_being_read_is_refused_after_the_fence() -> None:
    """A fenced run gets no further item, even of what is there already."""
    async with live(World(says("one", "two", "three"))) as it:
        stream = it.effects.model.stream("reply", asking())
        assert (await anext(stream)).text == "one"
        it.run.fence()
        with pytest.raises(Fenced):
            await anext(stream)
        assert await said(it.other().effects()) == "onetwothree"


async def test_a_run_that_wakes_after_the_fence_is_refused() -> None:
    """A hung stack that comes back an hour later can no longer touch anything."""
    async with live() as it:

        async def hanging() -> None:
            await asyncio.sleep(3_600.0)
            await it.effects.conversations.put("message", TURN)

        stack = asyncio.create_task(hanging())
        await turns()
        it.run.fence()
    with pytest.raises(Fenced):
        await stack
    assert it.world.made == []


async def test_a_run_fenced_while_its_call_is_under_way_does_not_get_the_result() -> None:
    """The write is on the tape for the successor; the fenced run is refused."""
    async with live(World(conversations=SlowStore(2.0))) as it:
        writing = asyncio.create_task(it.effects.conversations.put("message", TURN))
        await turns()
        it.run.fence()
        with pytest.raises(Fenced):
            await writing
        assert await it.other().effects().conversations.put("message", TURN)
        assert it.world.count("conversations.put") == 1


async def test_a_takeover_goes_on_with_the_pump_of_the_failed_run() -> None:
    """The successor reads what is there and tails the rest: one model call for one stream."""
    async with live(World(says("one ", "two ", "three", every=1.0))) as it:
        stream = it.effects.model.stream("reply", asking())
        assert (await anext(stream)).text == "one "
        it.run.fence()
        successor = it.other()
        stamps = [chunk.at for chunk in await chunks(successor.effects())]
        assert stamps[:3] == [1_000_000, 2_000_000, 3_000_000]
        assert [play.how for play in successor.plays] == ["exact"]
        assert it.world.count("model.stream") == 1


async def test_a_takeover_makes_what_is_missing_and_appends_it_to_the_same_tape() -> None:
    """Under `live` the recorded prefix is played and the rest is performed and recorded."""
    tools = ScriptedTools({"pay": "paid"}, writes=("pay",))
    async with live(World(says("ONE"), tools=tools)) as it:
        await said(it.effects, "one")
        await it.effects.tools.run("tool", tool("pay"))
        it.run.fence()
        successor = it.other()
        await said(successor.effects(), "one")
        await successor.effects().tools.run("tool", tool("pay"))
        await successor.effects().conversations.put("reply", TURN)
        assert [play.how for play in successor.plays] == ["exact", "exact", "live"]
        labels = [entry.operation.label for entry in it.exchange.tape.entries]
        assert labels == ["model.stream", "tools.run", "conversations.put"]
        assert tools.called == ["pay"]
