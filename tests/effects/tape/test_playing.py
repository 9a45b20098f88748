"""Playing: which entry a run gets for each call, and what becomes of a miss."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from msgspec.structs import replace

from contract.errors import Paused, TapeMiss
from contract.human import Form, OpenQuestion
from effects.local import START
from effects.model import by_last_text, says
from effects.tape import Exchange, Policy, Tape
from effects.testing import World
from effects.tools.fake import ScriptedTools
from tests.support.tape_calls import TURN, asking, live, said, tool, turns

pytestmark = pytest.mark.virtual

ANSWERS = {text: says(text.upper()) for text in ("one", "two", "three")}
QUESTION = OpenQuestion(Form("Sure?", ()))


async def recorded(*texts: str) -> tuple[World, Exchange]:
    """Record model calls at one site, one after the other, and end the exchange."""
    async with live(World(by_last_text(ANSWERS))) as it:
        for text in texts:
            await said(it.effects, text)
    it.world.made.clear()
    return it.world, it.exchange


NEAREST = {
    "exact": ("one two", "one two", "exact ONE, exact TWO"),
    "a changed prompt gets the answer of the same ordinal": (
        "one two three",
        "one zwei three",
        "exact ONE, nearest TWO, exact THREE",
    ),
    "order is not part of the key": (
        "one two three",
        "three one two",
        "exact THREE, exact ONE, exact TWO",
    ),
    "the first unplayed call when the ordinal is taken": (
        "one two three",
        "two zwei three",
        "exact TWO, nearest ONE, exact THREE",
    ),
    "a skipped call": ("one two three", "one drei", "exact ONE, nearest TWO"),
    "calls that no run made are unplayed": ("one two three", "one", "exact ONE"),
    "a call made twice in a row gets its answer once more": (
        "one two",
        "one one two",
        "exact ONE, nearest ONE, exact TWO",
    ),
    "but not twice more": ("one two", "one one one", "exact ONE, nearest ONE, nearest TWO"),
    "a call repeated after another stands in the place of the next": (
        "one two three",
        "one two one",
        "exact ONE, exact TWO, nearest THREE",
    ),
}


@pytest.mark.parametrize(("recording", "calls", "played"), NEAREST.values(), ids=NEAREST)
async def test_nearest_plays(recording: str, calls: str, played: str) -> None:
    """A shadow gets an answer for each call, and touches nothing outside."""
    world, exchange = await recorded(*recording.split())
    run = world.run(exchange, "nearest")
    answers = [await said(run.effects(), text) for text in calls.split()]
    assert world.made == []
    found = [f"{play.how} {answer}" for play, answer in zip(run.plays, answers, strict=True)]
    assert ", ".join(found) == played
    entries = {play.entry.seq for play in run.plays if play.entry is not None}
    unplayed = {entry.seq for entry in exchange.tape.entries} - entries
    assert len(unplayed) == len(recording.split()) - len({a.split()[1] for a in found})


async def test_an_extra_call_is_a_miss_that_names_the_nearest() -> None:
    """Nothing is left to play: the run fails, with a message that says what there was."""
    world, exchange = await recorded("one")
    run = world.run(exchange, "nearest")
    await said(run.effects(), "one")
    with pytest.raises(TapeMiss) as miss:
        await said(run.effects(), "extra")
    assert (miss.value.code, miss.value.nearest) == ("tape_miss", None)
    assert "'model.stream'" not in str(miss.value)
    assert "model.stream('reply')" in str(miss.value)
    plays = [(play.how, play.entry is None) for play in run.plays]
    assert plays == [("exact", False), ("missed", True)]


async def test_no_call_at_that_site_is_a_miss_under_nearest() -> None:
    """A tool result cannot stand in for a store's; sites are not mixed either."""
    world, exchange = await recorded("one")
    effects = world.run(exchange, "nearest").effects()
    with pytest.raises(TapeMiss):
        await effects.conversations.find("message", "m-1")
    with pytest.raises(TapeMiss):
        await said(effects, "one", site="elsewhere")
    assert world.made == []


async def test_fail_raises_at_the_first_difference() -> None:
    """Strict replay: the miss message names the nearest recorded call."""
    world, exchange = await recorded("one")
    with pytest.raises(TapeMiss) as miss:
        await said(world.run(exchange, "fail").effects(), "uno")
    assert miss.value.nearest is not None
    assert '"content":"one"' in miss.value.nearest


async def test_a_run_waits_for_a_call_not_made_yet() -> None:
    """A tailing shadow that is ahead of the served run waits for it."""
    async with live(World(by_last_text(ANSWERS))) as it:
        shadow = it.other("nearest")
        reading = asyncio.create_task(said(shadow.effects(), "one"))
        await asyncio.sleep(60.0)
        assert (reading.done(), shadow.waiting, it.world.made) == (False, 1, [])
        await said(it.effects, "one")
        assert await reading == "ONE"
        assert [play.how for play in shadow.plays] == ["exact"]


@pytest.mark.parametrize("policy", ["nearest", "fail"])
async def test_the_wait_for_a_call_ends_when_recording_ends(policy: Policy) -> None:
    """Completed, failed, paused or fenced: nothing more will come, the miss is decided now."""
    async with live(World(by_last_text(ANSWERS))) as it:
        reading = asyncio.create_task(said(it.other(policy).effects(), "uno"))
        await said(it.effects, "one")
        assert not reading.done()
        it.exchange.tape.stop_recording()
        if policy == "nearest":
            assert await reading == "ONE"
        else:
            with pytest.raises(TapeMiss):
                await reading


async def test_plays_stand_in_the_order_of_the_calls_whichever_waited() -> None:
    """A changed order of writes shows, although the waits ended in the recorded order."""
    async with live(World(tools=ScriptedTools({"a": "A", "b": "B"}))) as it:
        shadow = it.other("nearest")
        waiting = [
            asyncio.create_task(shadow.effects().tools.run("tool", tool(name, name)))
            for name in ("b", "a")
        ]
        await turns()
        for name in ("a", "b"):
            await it.effects.tools.run("tool", tool(name, name))
        await asyncio.gather(*waiting)
        entries = it.exchange.tape.entries
        assert [play.args for play in shadow.plays] == [entry.args for entry in reversed(entries)]
        assert {play.at for play in shadow.plays} == {0}


async def test_a_finished_stream_is_read_one_turn_of_the_loop_an_item() -> None:
    """A replay never holds up what is served: other tasks run between two items."""
    async with live(World(says(*"abcdef"))) as it:
        await said(it.effects)
    turns_had = 0

    async def other() -> None:
        nonlocal turns_had
        while True:
            turns_had += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    before: list[int] = []
    async for _ in it.other("nearest").effects().model.stream("reply", asking()):
        before.append(turns_had)  # noqa: PERF401 - when, not what, is collected
    task.cancel()
    assert [later - earlier for earlier, later in pairwise(before)] == [1] * 7


@pytest.mark.parametrize("policy", ["nearest", "live"])
async def test_a_finished_single_call_yields_to_the_loop_too(policy: Policy) -> None:
    """A recorded flow of many small calls is no exception."""
    async with live() as it:
        await it.effects.conversations.put("message", TURN)
    seen: list[str] = []
    effects = it.other(policy).effects()
    asyncio.get_running_loop().call_soon(seen.append, "others")
    await effects.conversations.put("message", TURN)
    assert seen == ["others"]


async def test_a_tape_that_ends_in_a_question_pauses_the_run_that_plays_it() -> None:
    """The shadow of a paused run is paused as well, and that is no miss."""
    async with live() as it:
        hitl_id = await it.effects.human.open("ask", QUESTION)
    run = it.other("nearest")
    assert await run.effects().human.open("ask", QUESTION) == hitl_id
    with pytest.raises(Paused) as pause:
        await run.effects().human.answer("ask", hitl_id)
    assert pause.value.hitl_id == hitl_id
    assert [play.how for play in run.plays] == ["exact"]


async def test_a_question_without_an_answer_pauses_and_leaves_nothing_on_the_tape() -> None:
    """`human.answer` is recorded once there is one, never before."""
    async with live() as it:
        hitl_id = await it.effects.human.open("ask", QUESTION)
        with pytest.raises(Paused):
            await it.effects.human.answer("ask", hitl_id)
        assert [entry.operation.label for entry in it.exchange.tape.entries] == ["human.open"]
        assert [play.how for play in it.run.plays] == ["live"]


async def test_the_time_of_a_turn_is_played_as_it_was_read() -> None:
    """It is in results alone: a run finds the call by its arguments, and gets the recorded time."""
    turn = replace(TURN, data={"rows": ["a", "b"]})
    async with live(World()) as it:
        await it.effects.conversations.put("reply", turn)
        read = await it.effects.conversations.find("message", turn.message_id)
    it.world.clock.advance(3_600)
    assert read == replace(turn, at=int(START.timestamp()))
    tape = Tape.load(it.exchange.tape.record())
    run = it.world.run(it.world.exchange(tape), "fail")
    effects = run.effects()
    assert await effects.conversations.put("reply", turn)
    assert await effects.conversations.find("message", turn.message_id) == read
    assert [play.how for play in run.plays] == ["exact", "exact"]
