"""Pauses: a tape may end in a question, and is no worse for it."""

from __future__ import annotations

import pytest

from contract.errors import Paused
from contract.human import Form, HumanAnswer, OpenQuestion
from effects.human import ScriptedHuman
from effects.testing import World

pytestmark = pytest.mark.virtual

QUESTION = OpenQuestion(Form("Sure?", ()))


async def test_a_tape_that_ends_in_a_question_pauses_whoever_plays_it() -> None:
    """The shadow of a paused run is paused as well, and that is no miss."""
    world = World()
    exchange = world.exchange()
    hitl_id = await world.run(exchange).effects().human.open("ask", QUESTION)
    await exchange.close()
    run = world.run(exchange, "nearest")
    assert await run.effects().human.open("ask", QUESTION) == hitl_id
    with pytest.raises(Paused) as pause:
        await run.effects().human.answer("ask", hitl_id)
    assert pause.value.hitl_id == hitl_id
    assert [play.how for play in run.plays] == ["exact"]


async def test_a_question_without_an_answer_pauses_and_leaves_nothing_on_the_tape() -> None:
    """`human.answer` is recorded once there is one, never before."""
    world = World()
    exchange = world.exchange()
    run = world.run(exchange)
    hitl_id = await run.effects().human.open("ask", QUESTION)
    with pytest.raises(Paused):
        await run.effects().human.answer("ask", hitl_id)
    assert [entry.operation.label for entry in exchange.tape.entries] == ["human.open"]
    assert [play.how for play in run.plays] == ["live"]
    await exchange.close()


async def test_an_answer_that_is_there_is_recorded_and_played() -> None:
    """A human who answers at once does not pause anybody."""
    world = World(human=ScriptedHuman([HumanAnswer("approve", by="ann")]))
    exchange = world.exchange()
    effects = world.run(exchange).effects()
    answer = await effects.human.answer("ask", await effects.human.open("ask", QUESTION))
    await exchange.close()
    played = world.run(exchange, "fail").effects()
    assert await played.human.answer("ask", await played.human.open("ask", QUESTION)) == answer
    assert answer == HumanAnswer("approve", by="ann")
