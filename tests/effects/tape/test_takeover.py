"""Takeover: a successor on the tape of a failed run, which goes on."""

from __future__ import annotations

import pytest

from effects.model import says
from effects.testing import World
from effects.tools.fake import ScriptedTools
from tests.effects.tape.calls import TURN, asking, chunks, said, tool

pytestmark = pytest.mark.virtual


async def test_a_takeover_goes_on_with_the_pump_of_the_failed_run() -> None:
    """The successor reads what is there and tails the rest: one model call for one stream."""
    world = World(says("one ", "two ", "three", every=1.0))
    exchange = world.exchange()
    failed = world.run(exchange, name="graph")
    stream = failed.effects().model.stream("reply", asking())
    assert (await anext(stream)).text == "one "
    failed.fence()
    successor = world.run(exchange, name="legacy")
    assert [chunk.at for chunk in await chunks(successor.effects())][:3] == [
        1_000_000,
        2_000_000,
        3_000_000,
    ]
    assert [play.how for play in successor.plays] == ["exact"]
    assert world.count("model.stream") == 1
    await exchange.close()


async def test_a_takeover_makes_what_is_missing_and_appends_it_to_the_same_tape() -> None:
    """Under `live` the recorded prefix is played and the rest is performed and recorded."""
    tools = ScriptedTools({"pay": "paid"}, writes=("pay",))
    world = World(says("ONE"), tools=tools)
    exchange = world.exchange()
    failed = world.run(exchange, name="graph")
    await said(failed.effects(), "one")
    await failed.effects().tools.run("tool", tool("pay"))
    failed.fence()
    successor = world.run(exchange, name="legacy")
    await said(successor.effects(), "one")
    await successor.effects().tools.run("tool", tool("pay"))
    await successor.effects().conversations.put("reply", TURN)
    assert [play.how for play in successor.plays] == ["exact", "exact", "live"]
    assert [entry.operation.label for entry in exchange.tape.entries] == [
        "model.stream",
        "tools.run",
        "conversations.put",
    ]
    assert tools.called == ["pay"]
    await exchange.close()
