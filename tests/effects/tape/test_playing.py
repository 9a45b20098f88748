"""Playing: what a run is given for what it asks, and what becomes of a miss."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from contract.errors import TapeCut, TapeMiss
from contract.model import Chunk
from effects.model import Hang, by_last_text, says
from effects.tape import Tape
from effects.testing import World
from effects.tools.fake import ScriptedTools
from tests.effects.tape.calls import TURN, asking, said, tool, turns

if TYPE_CHECKING:
    from effects.tape import Exchange

pytestmark = pytest.mark.virtual

ANSWERS = {text: says(text.upper()) for text in ("one", "two", "three")}


async def recorded(*texts: str) -> tuple[World, Exchange]:
    """Record model calls at one site, one after the other, and end the exchange."""
    world = World(by_last_text(ANSWERS))
    exchange = world.exchange()
    effects = world.run(exchange).effects()
    for text in texts:
        await said(effects, text)
    await exchange.close()
    world.made.clear()
    return world, exchange


async def played(world: World, exchange: Exchange, *texts: str) -> list[str]:
    """Ask on the tape under `nearest`; gives what was said and how each call was answered."""
    run = world.run(exchange, "nearest")
    answers = [await said(run.effects(), text) for text in texts]
    assert world.made == []
    return [f"{play.how} {answer}" for play, answer in zip(run.plays, answers, strict=True)]


async def test_an_exact_call_is_played_without_touching_the_world() -> None:
    """A shadow pays no second model bill."""
    world, exchange = await recorded("one", "two")
    assert await played(world, exchange, "one", "two") == ["exact ONE", "exact TWO"]


async def test_nearest_gives_the_call_of_the_same_ordinal() -> None:
    """A changed prompt gets the answer to the prompt that stood in its place."""
    world, exchange = await recorded("one", "two", "three")
    assert await played(world, exchange, "one", "zwei", "three") == [
        "exact ONE",
        "nearest TWO",
        "exact THREE",
    ]


async def test_nearest_survives_another_order() -> None:
    """Calls in another order are exact all the same: order is not part of the key."""
    world, exchange = await recorded("one", "two", "three")
    assert await played(world, exchange, "three", "one", "two") == [
        "exact THREE",
        "exact ONE",
        "exact TWO",
    ]


async def test_nearest_gives_the_first_unplayed_call_when_its_ordinal_is_taken() -> None:
    """After a change of order the ordinal may be used up: then it is the first left over."""
    world, exchange = await recorded("one", "two", "three")
    assert await played(world, exchange, "two", "zwei", "three") == [
        "exact TWO",
        "nearest ONE",
        "exact THREE",
    ]


async def test_nearest_survives_a_skipped_call() -> None:
    """A candidate that leaves a call out goes on with the next; the tape shows what is unplayed."""
    world, exchange = await recorded("one", "two", "three")
    assert await played(world, exchange, "one", "drei") == ["exact ONE", "nearest TWO"]
    run = world.run(exchange, "nearest")
    await said(run.effects(), "one")
    unplayed = {entry.seq for entry in exchange.tape.entries} - {
        play.entry.seq for play in run.plays if play.entry is not None
    }
    assert unplayed == {1, 2}


async def test_a_call_made_twice_in_a_row_gets_its_answer_once_more() -> None:
    """The next question keeps its own; a third time there is no more to give."""
    world, exchange = await recorded("one", "two")
    assert await played(world, exchange, "one", "one", "two") == [
        "exact ONE",
        "nearest ONE",
        "exact TWO",
    ]
    assert await played(world, exchange, "one", "one", "one") == [
        "exact ONE",
        "nearest ONE",
        "nearest TWO",
    ]


async def test_a_question_repeated_after_another_stands_in_the_place_of_the_next() -> None:
    """A prompt that lost what was said since looks like this: it is the next one, changed."""
    world, exchange = await recorded("one", "two", "three")
    assert await played(world, exchange, "one", "two", "one") == [
        "exact ONE",
        "exact TWO",
        "nearest THREE",
    ]


async def test_an_extra_call_is_a_miss_that_names_the_nearest() -> None:
    """Nothing is left to give: the run fails, and is told what there was."""
    world, exchange = await recorded("one")
    run = world.run(exchange, "nearest")
    await said(run.effects(), "one")
    with pytest.raises(TapeMiss) as miss:
        await said(run.effects(), "extra")
    assert (miss.value.code, miss.value.nearest) == ("tape_miss", None)
    assert "'model.stream'" not in str(miss.value)
    assert "model.stream('reply')" in str(miss.value)
    assert [(play.how, play.entry is None) for play in run.plays] == [
        ("exact", False),
        ("missed", True),
    ]


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
    world = World(by_last_text(ANSWERS))
    exchange = world.exchange()
    shadow = world.run(exchange, "nearest")
    reading = asyncio.create_task(said(shadow.effects(), "one"))
    await asyncio.sleep(60.0)
    assert (reading.done(), shadow.waiting, world.made) == (False, 1, [])
    await said(world.run(exchange).effects(), "one")
    assert await reading == "ONE"
    assert [play.how for play in shadow.plays] == ["exact"]
    await exchange.close()


@pytest.mark.parametrize("policy", ["nearest", "fail"])
async def test_the_wait_for_a_call_ends_when_recording_ends(policy: str) -> None:
    """Completed, failed, paused or fenced: nothing more will come, the miss is decided now."""
    world = World(by_last_text(ANSWERS))
    exchange = world.exchange()
    reading = asyncio.create_task(
        said(world.run(exchange, "nearest" if policy == "nearest" else "fail").effects(), "uno")
    )
    await said(world.run(exchange).effects(), "one")
    assert not reading.done()
    exchange.tape.stop_recording()
    if policy == "nearest":
        assert await reading == "ONE"
    else:
        with pytest.raises(TapeMiss):
            await reading
    await exchange.close()


async def test_plays_stand_in_the_order_of_asking_whoever_waited() -> None:
    """A changed order of writes shows, although the waits ended in the recorded order."""
    world = World(tools=ScriptedTools({"a": "A", "b": "B"}))
    exchange = world.exchange()
    shadow = world.run(exchange, "nearest")
    waiting = [
        asyncio.create_task(shadow.effects().tools.run("tool", tool(name, name)))
        for name in ("b", "a")
    ]
    await turns()
    served = world.run(exchange).effects()
    for name in ("a", "b"):
        await served.tools.run("tool", tool(name, name))
    await asyncio.gather(*waiting)
    assert [play.args for play in shadow.plays] == [
        entry.args for entry in reversed(exchange.tape.entries)
    ]
    assert {play.at for play in shadow.plays} == {0}
    await exchange.close()


async def test_a_finished_stream_is_read_one_turn_of_the_loop_an_item() -> None:
    """A replay never holds up what is served: between two items everybody else has had a turn."""
    world = World(says(*"abcdef"))
    exchange = world.exchange()
    await said(world.run(exchange).effects())
    await exchange.close()
    turns_had = 0

    async def other() -> None:
        nonlocal turns_had
        while True:
            turns_had += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    before: list[int] = []
    async for _ in world.run(exchange, "nearest").effects().model.stream("reply", asking()):
        before.append(turns_had)  # noqa: PERF401 - when, not what, is collected
    task.cancel()
    assert [later - earlier for earlier, later in pairwise(before)] == [1] * 7


async def test_a_finished_single_call_yields_to_the_loop_too() -> None:
    """A recorded flow of many small calls is no exception."""
    world = World()
    exchange = world.exchange()
    live = world.run(exchange).effects()
    await live.conversations.put("message", TURN)
    await exchange.close()
    for policy in ("nearest", "live"):
        seen: list[str] = []
        effects = world.run(exchange, "nearest" if policy == "nearest" else "live").effects()
        asyncio.get_running_loop().call_soon(seen.append, "others")
        await effects.conversations.put("message", TURN)
        assert seen == ["others"]


async def test_a_recorded_error_ends_a_replay_in_the_same_place() -> None:
    """Items first, then the end the recording run saw."""
    world = World([Chunk(text="half"), Hang()])
    exchange = world.exchange()
    reading = asyncio.create_task(said(world.run(exchange).effects()))
    await turns()
    await exchange.cancel_reads()
    with pytest.raises(TapeCut):
        await reading
    await exchange.close()
    again = Tape.load(exchange.tape.record())
    stream = world.run(world.exchange(again), "nearest").effects().model.stream("reply", asking())
    assert (await anext(stream)).text == "half"
    with pytest.raises(TapeCut):
        await anext(stream)
