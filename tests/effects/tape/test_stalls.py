"""Stalls: a stack owes a sign of life for what it was given, never for what it waits for."""

from __future__ import annotations

import asyncio

import pytest

from contract.model import Chunk
from effects.model import Wait
from effects.testing import World
from effects.tools.fake import ScriptedTools
from tests.effects.tape.calls import asking, chunks, tool, turns

pytestmark = pytest.mark.virtual


async def test_a_stack_owes_nothing_while_it_waits_for_the_world() -> None:
    """Silence of the provider is the provider's: it never makes a stack look stalled."""
    world = World([Wait(60.0), Chunk(text="x"), Wait(60.0)])
    run = world.run()
    reading = asyncio.create_task(chunks(run.effects()))
    for _ in range(2):
        await turns()
        assert run.idle_since() is None
        await asyncio.sleep(30.0)
        assert run.idle_since() is None
        await asyncio.sleep(31.0)
    await reading


async def test_a_stack_owes_a_sign_of_life_since_it_was_given_something() -> None:
    """The last item handed over, or the last call made, starts the time."""
    world = World([Wait(2.0), Chunk(text="x"), Wait(100.0)])
    exchange = world.exchange()
    run = world.run(exchange)
    assert run.idle_since() == 0
    stream = run.effects().model.stream("reply", asking())
    await anext(stream)
    await asyncio.sleep(5.0)  # the stack does something else with its item
    assert run.idle_since() == 2_000_000
    await run.effects().clock.now("prompt")
    assert run.idle_since() == 7_000_000
    await exchange.close()


async def test_a_frame_is_a_sign_of_life() -> None:
    """Whoever drives a flow says so for each event."""
    run = World().run()
    await asyncio.sleep(1.0)
    run.touch()
    assert run.idle_since() == 1_000_000


async def test_waiting_for_a_call_not_made_yet_is_waiting_for_the_world() -> None:
    """A shadow that tails is not stalled because the served run is slow."""
    world = World()
    exchange = world.exchange()
    run = world.run(exchange, "nearest")
    reading = asyncio.create_task(run.effects().ids.new("reply"))
    await asyncio.sleep(10.0)
    assert run.idle_since() is None
    await world.run(exchange).effects().ids.new("reply")
    assert await reading == "id-1"
    assert run.idle_since() == 10_000_000


async def test_one_of_several_calls_under_way_is_enough_to_be_waiting() -> None:
    """Parallel nodes: as long as anything is asked of the world, the stack is not stalled."""
    world = World(tools=ScriptedTools({"fast": "x", "slow": "y"}, slow={"fast": 1.0, "slow": 9.0}))
    exchange = world.exchange()
    run = world.run(exchange)
    tasks = [
        asyncio.create_task(run.effects().tools.run("tool", tool(name, name)))
        for name in ("fast", "slow")
    ]
    await asyncio.sleep(5.0)
    assert run.idle_since() is None
    await asyncio.gather(*tasks)
    assert run.idle_since() == 9_000_000
    await exchange.close()


class SlowIds:
    """Identifiers from a service that takes its time."""

    async def new(self, *_: object) -> str:
        """Make one, late."""
        await asyncio.sleep(3.0)
        return "late"


async def test_an_instant_that_takes_its_time_is_still_the_worlds() -> None:
    """An operation answered on the spot may be answered slowly by somebody's own adapter."""
    run = World(ids=SlowIds()).run()
    naming = asyncio.create_task(run.effects().ids.new("reply"))
    await asyncio.sleep(1.0)
    assert run.idle_since() is None
    assert await naming == "late"
    assert run.idle_since() == 3_000_000
