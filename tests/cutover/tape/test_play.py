"""Playing: nothing is performed, misses are noted; and calls without a run while one plays."""

import asyncio
import gc
import threading
from contextvars import copy_context
from functools import partial

import pytest

from cutover import EffectFailed, Exchange, Run
from cutover.errors import Completed, Pause, Paused, PlayedOutside
from cutover.tape import HUMAN_ANSWER, effect, outside
from tests.support.tapes import World, code, ended, play, start, turn, within


async def test_a_play_performs_nothing(world: World) -> None:
    """What is on the tape is found, a miss plays the nearest of its name, another one ends."""
    async with Exchange() as exchange:
        await within(Run(exchange, "legacy"), lambda: world.read("a"))
    run = play(exchange)
    assert await within(run, lambda: world.read("a")) == "a #1"
    assert await within(run, lambda: world.read("b")) == "a #1"
    with pytest.raises(Exception, match=r"world\.write"):
        await within(run, lambda: world.write("a"))
    assert [one.how for one in run.plays] == ["tape", "nearest", "nearest"]
    assert [one.entry in exchange.entries for one in run.plays] == [True, True, False]
    assert code(run) == "tape_miss"
    assert world.begun == ["a"]


async def test_the_nearest_call_is_the_one_at_the_same_place(world: World) -> None:
    """The second call that misses plays the second one of its name, those behind it the last."""
    async with Exchange() as exchange:
        live = Run(exchange, "legacy")
        for key in ("a", "b"):
            await within(live, lambda key=key: world.read(key))  # type: ignore[misc]
    run = play(exchange)
    heard = [await within(run, lambda k=k: world.read(k)) for k in ("x", "y", "z", "b")]  # type: ignore[misc]
    assert heard == ["a #1", "b #1", "b #1", "b #1"]
    assert [one.how for one in run.plays] == ["nearest"] * 3 + ["tape"]


async def test_a_play_waits_for_a_call_while_the_tape_is_recorded(world: World) -> None:
    """It may be ahead of the run that is served, which waits for nothing it holds."""
    async with Exchange() as exchange:
        run = play(exchange)
        task = start(run, lambda: world.read("a"))
        await turn()
        assert (run.waiting, world.begun) == (1, [])
        await within(Run(exchange, "legacy"), lambda: world.read("a"))
        assert await task == "a #1"
        late = start(run, lambda: world.read("never"))
        await turn()
        assert not late.done()
    assert await late == "a #1"
    assert [one.how for one in run.plays] == ["tape", "nearest"]


async def test_a_play_that_is_cancelled_while_it_waits_leaves_nothing(world: World) -> None:
    """Its waiting is over, and the tape goes on."""
    async with Exchange() as exchange:
        run = play(exchange)
        task = start(run, lambda: world.read("a"))
        await turn()
        task.cancel()
        await ended(task)
        assert run.waiting == 0
        await within(Run(exchange, "legacy"), lambda: world.read("a"))


async def test_a_slow_play_holds_up_nothing_that_is_served(world: World) -> None:
    """A reader that stands still keeps neither the call nor the exchange waiting."""
    async with Exchange() as exchange:
        live, played = Run(exchange, "legacy"), play(exchange)
        stuck = asyncio.Event()

        async def slow() -> None:
            async for _ in world.stream("s"):
                await stuck.wait()

        async def served() -> list[int]:
            return [number async for number in world.stream("s")]

        task = start(played, slow)
        assert await within(live, served) == [0, 1, 2, 3, 4]
        await exchange.aclose()
        stuck.set()
        await task


async def test_a_play_after_the_end_of_its_exchange_reads_the_tape(world: World) -> None:
    """Shadows run on the finished tape."""
    async with Exchange() as exchange:
        live = Run(exchange, "legacy")
        with pytest.raises(Exception, match="bad"):
            await within(live, lambda: world.read("bad"))
    run = play(exchange)
    with pytest.raises(Exception, match="bad"):
        await within(run, lambda: world.read("bad"))
    assert run.ended is None
    assert exchange.off_tape == {}


async def test_a_play_of_a_paused_exchange_pauses_with_its_question() -> None:
    """`human.answer` leaves no entry, and the other stack's run ends as the served one did."""

    @effect(HUMAN_ANSWER)
    async def answer(question: str) -> str:
        raise Paused(question)

    async with Exchange() as exchange:
        live = Run(exchange, "legacy")
        with pytest.raises(Paused):
            await within(live, lambda: answer("q1"))
        await exchange.pause()
    run = play(exchange)
    with pytest.raises(Paused):
        await within(run, lambda: answer("another wording"))
    assert run.ended == live.ended == Pause("q1")
    assert exchange.entries == []


async def test_a_cut_call_is_cut_for_a_play(world: World) -> None:
    """A stack that reads further than the one that was served gets a failure, no wait."""
    world.hold("s/2")
    async with Exchange() as exchange:

        async def leave() -> None:
            async for number in world.stream("s"):
                if number == 1:
                    return

        await within(Run(exchange, "legacy"), leave)
    run = play(exchange)
    seen: list[int] = []

    async def read_on() -> None:
        async for number in world.stream("s"):
            seen.append(number)  # noqa: PERF401 - what came before the cut counts

    with pytest.raises(EffectFailed, match="Cut"):
        await within(run, read_on)
    assert seen == [0, 1]


# Outside of runs.


async def test_without_a_run_effects_are_transparent(world: World) -> None:
    """Code that is not served calls its functions."""
    assert await world.write("a") == "a #1"
    assert [number async for number in world.stream("s", 2)] == [0, 1]
    assert outside == {}


async def test_while_a_tape_plays_writes_without_a_run_are_refused_and_reads_counted(
    world: World,
) -> None:
    """A context was lost somewhere: the shadow's write must not reach the world."""
    async with Exchange() as exchange:
        run = play(exchange)
        with pytest.raises(PlayedOutside, match=r"world\.write"):
            await world.write("a")
        assert await world.read("b") == "b #1"
        run.end(Completed())
        assert await world.write("c") == "c #1"
    assert world.done == ["b", "c"]
    assert outside == {"world.read": 1}


async def test_a_live_run_performs_while_another_plays(world: World) -> None:
    """What effects call within is the live run's own, and neither refused nor counted."""

    @effect("outer", writes=True)
    async def outer() -> str:
        return await world.write("inner")

    async with Exchange() as exchange:
        shadow = play(exchange)
        assert await within(Run(exchange, "legacy"), outer) == "inner #1"
        shadow.end(Completed())
    assert outside == {}


async def test_a_play_that_is_forgotten_refuses_no_writes_for_ever(world: World) -> None:
    """A run that was not ended leaves with its last reference."""
    async with Exchange() as exchange:
        run = play(exchange)
        assert run.ended is None
        del run
        gc.collect()
        assert await world.write("a") == "a #1"


@pytest.mark.parametrize("copied", [True, False])
async def test_a_thread_that_lost_its_context_writes_nothing(world: World, copied: bool) -> None:
    """A thread with the context plays; one without is refused, for it may be a play's."""
    said: list[BaseException | str] = []

    @effect("sync.write", writes=True)
    def write(key: str) -> str:
        world.done.append(key)
        return key

    def work() -> None:
        try:
            said.append(write("a"))
        except PlayedOutside as error:
            said.append(error)

    async with Exchange() as exchange:
        with Run(exchange, "legacy").current():
            await asyncio.to_thread(write, "a")
        run = play(exchange)

        async def spawn() -> None:
            target = partial(copy_context().run, work) if copied else work
            thread = threading.Thread(target=target)
            thread.start()
            await asyncio.to_thread(thread.join)

        await within(run, spawn)
        run.end(Completed())
    assert world.done == ["a"]
    assert (said == ["a"]) is copied
    assert isinstance(said[0], PlayedOutside) is not copied
