"""Control is decided by the run, not by exceptions; and what a successor may and may not do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from cutover import Exchange, Run, StackFailed, effect
from cutover.errors import Completed, Failed, Fenced, Outcome, TapeMiss, WriteDiffers
from cutover.tape import Call
from tests.support.tapes import World, code, ended, play, start, turn, within


async def test_the_first_outcome_counts() -> None:
    """How a run ended is said once."""
    async with Exchange() as exchange:
        run = Run(exchange, "legacy")
        run.end(Completed())
        run.end(Failed("stalled"))
        run.fence()
        assert run.ended == Completed()


async def test_a_swallowed_miss_still_ends_the_run(world: World) -> None:
    """Nodes have `except Exception`: the run is over, and so is every later call of it."""
    async with Exchange() as exchange:
        run = play(exchange)
        exchange.finish_recording()

        async def careless() -> str:
            with suppress(Exception):
                await world.read("a")
            with pytest.raises(Fenced):
                await world.write("b")
            return "went on"

        assert await within(run, careless) == "went on"
        assert code(run) == "tape_miss"
        assert world.begun == []


async def test_a_miss_in_a_task_group_ends_the_run_by_its_own_name(world: World) -> None:
    """What wraps the exception changes nothing."""
    async with Exchange() as exchange:
        run = play(exchange)
        exchange.finish_recording()

        async def grouped() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(world.read("a"))

        with pytest.raises(ExceptionGroup):
            await within(run, grouped)
        assert code(run) == "tape_miss"


async def test_a_fenced_run_performs_nothing_more(world: World) -> None:
    """Each call is refused, whatever the stack does with the exception."""
    async with Exchange() as exchange:
        run = Run(exchange, "legacy")
        await within(run, lambda: world.read("a"))
        run.fence()
        for call in (world.read, world.write):
            with pytest.raises(Fenced):
                await within(run, lambda call=call: call("b"))  # type: ignore[misc]
        assert run.ended == Failed("fenced")
    with pytest.raises(Fenced):  # behind the exchange's end, too
        await within(run, lambda: world.read("c"))
    assert world.begun == ["a"]


async def test_a_fence_wakes_every_reader_of_the_run(world: World) -> None:
    """No call of a fenced run goes on waiting: neither for an item nor for an entry."""
    world.hold("r")
    async with Exchange() as exchange:
        live, played = Run(exchange, "legacy"), play(exchange)
        tasks = [
            start(live, lambda: world.read("r")),
            start(played, lambda: world.read("r")),
            start(played, lambda: world.read("not made yet")),
        ]
        await turn()
        live.fence()
        played.fence()
        await turn()
        assert [type(await ended(task)) for task in tasks] == [Fenced] * 3
        assert (live.waiting, played.waiting) == (0, 0)


async def test_a_stopped_run_wakes_its_other_branches(world: World) -> None:
    """One branch misses; what its siblings wait for on the tape is refused, too."""
    world.hold("r")
    async with Exchange() as exchange:
        live, played = Run(exchange, "legacy"), play(exchange)
        first = start(live, lambda: world.read("r"))
        sibling = start(played, lambda: world.read("r"))
        await turn()
        played.end(Failed("stalled"))
        assert isinstance(await ended(sibling), Fenced)
        world.let()
        assert await first == "r #1"


async def test_a_miss_names_what_is_on_the_tape(world: World) -> None:
    """The message says which calls there were."""
    async with Exchange() as exchange:
        await within(Run(exchange, "legacy"), lambda: world.read("a"))
        exchange.finish_recording()
        with pytest.raises(TapeMiss, match=r"'world\.write'.*'world\.read'"):
            await within(play(exchange), lambda: world.write("a"))


# Takeover.


async def test_a_successor_finds_what_was_done_and_performs_the_rest(world: World) -> None:
    """No call is made twice; the first new one is performed."""
    async with Exchange() as exchange:
        first = Run(exchange, "legacy")
        await within(first, lambda: world.read("a"))
        await within(first, lambda: world.write("b"))
        first.fence()
        second = Run(exchange, "graph", "fallback")
        assert await within(second, lambda: world.read("a")) == "a #1"
        assert await within(second, lambda: world.write("b")) == "b #1"
        assert await within(second, lambda: world.write("c")) == "c #1"
        assert world.done == ["a", "b", "c"]
        assert [one.how for one in second.plays] == ["tape", "tape", "live"]


async def test_a_successor_awaits_a_write_that_is_under_way(world: World) -> None:
    """A write of a fenced run is tailed and never repeated."""
    world.hold("w")
    async with Exchange() as exchange:
        first = Run(exchange, "legacy")
        task = start(first, lambda: world.write("w"))
        await turn()
        first.fence()
        second = start(Run(exchange, "graph", "fallback"), lambda: world.write("w"))
        await turn()
        assert not second.done()
        world.let()
        assert await second == "w #1"
        assert isinstance(await ended(task), Fenced)
    assert world.begun == ["w"]


async def test_a_write_worded_otherwise_is_not_made(world: World) -> None:
    """The predecessor may have made it: the run ends with `write_differs`."""
    async with Exchange() as exchange:
        first = Run(exchange, "legacy")
        await within(first, lambda: world.write("100 g"))
        first.fence()
        second = Run(exchange, "graph", "fallback")
        with pytest.raises(WriteDiffers):
            await within(second, lambda: world.write("0.1 kg"))
        assert code(second) == "write_differs"
    assert world.done == ["100 g"]


async def test_a_new_write_is_made_once_the_old_ones_are_matched(world: World) -> None:
    """Only what the successor has not yet made itself stands against a new one."""
    async with Exchange() as exchange:
        first = Run(exchange, "legacy")
        await within(first, lambda: world.write("a"))
        first.fence()
        second = Run(exchange, "graph", "fallback")
        await within(second, lambda: world.write("a"))
        await within(second, lambda: world.write("b"))
        await within(second, lambda: world.read("new"))
    assert world.done == ["a", "b", "new"]


async def _answer() -> AsyncIterator[bytes]:
    yield b"bought"


@pytest.mark.parametrize(
    ("behind", "expected", "how"), [(True, b"old", "nearest"), (False, b"bought", "live")]
)
async def test_below_the_clients_text_a_model_is_not_asked_anew(
    behind: bool, expected: bytes, how: str
) -> None:
    """A model call that misses plays the nearest one before anything is bought, and is noted."""
    async with Exchange() as exchange:

        async def old() -> AsyncIterator[bytes]:
            yield b"old"

        first = Run(exchange, "legacy")
        [_ async for _ in first.call(Call("model.chat", b"1", b"1", model=True), old)]
        first.fence()
        second = Run(exchange, "graph", "fallback")
        second.behind = lambda: behind
        other = Call("model.chat", b"2", b"2", model=True)
        assert [item async for item in second.call(other, _answer)] == [expected]
        assert [one.how for one in second.plays] == [how]


async def test_a_stack_ahead_of_its_frames_asks_the_model_on() -> None:
    """Where nothing its predecessor asked is left, a call is its next one and no other wording."""
    async with Exchange() as exchange:
        first, asked = Run(exchange, "legacy"), Call("model.chat", b"1", b"1", model=True)
        [_ async for _ in first.call(asked, _answer)]
        first.fence()
        second = Run(exchange, "graph", "fallback")
        second.behind = lambda: True
        [_ async for _ in second.call(asked, _answer)]
        on = Call("model.chat", b"2", b"2", model=True)
        assert [item async for item in second.call(on, _answer)] == [b"bought"]
        assert [one.how for one in second.plays] == ["tape", "live"]


async def test_a_call_that_is_no_models_is_performed_below_the_clients_text(world: World) -> None:
    """Reads of the world cost nothing that was not wanted."""
    async with Exchange() as exchange:
        await within(Run(exchange, "legacy"), lambda: world.read("a"))
        second = Run(exchange, "graph", "fallback")
        second.behind = lambda: True
        assert await within(second, lambda: world.read("b")) == "b #1"


async def test_a_failed_call_fails_for_a_successor_and_its_retry_is_found() -> None:
    """Retries are further calls, in order."""
    tries: list[int] = []

    @effect("flaky", raises=(StackFailed,))
    async def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise StackFailed("busy")
        return "fine"

    async def persistent() -> str:
        with suppress(StackFailed):
            return await flaky()
        return await flaky()

    async with Exchange() as exchange:
        first = Run(exchange, "legacy")
        assert await within(first, persistent) == "fine"
        first.fence()
        assert await within(Run(exchange, "graph", "fallback"), persistent) == "fine"
    assert len(tries) == 2


@pytest.mark.parametrize("outcome", [Completed(), Failed("x")])
async def test_reading_a_failed_world_is_no_control(world: World, outcome: Outcome) -> None:
    """A call that fails does not end the run: the stack may go on."""
    async with Exchange() as exchange:
        run = Run(exchange, "legacy")
        with pytest.raises(Exception, match="bad"):
            await within(run, lambda: world.read("bad"))
        assert run.ended is None
        await within(run, lambda: world.read("good"))
        run.end(outcome)
        assert run.ended == outcome
