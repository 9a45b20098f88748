"""Bounds: what happens when a tape, or all tapes together, grow too large."""

from __future__ import annotations

import asyncio

import pytest

from contract.errors import TapeCut
from contract.model import Chunk, ToolCallDelta
from effects.model import Wait, says
from effects.tape import FRAMES_FACTOR, Budget, Tape
from effects.testing import World
from tests.support.tape_calls import TURN, asking, live, said, turns

pytestmark = pytest.mark.virtual

LONG = ["x" * 100] * 20


async def test_serving_goes_on_when_the_tape_overflows() -> None:
    """The client gets every word; beyond the bound nothing is kept, what was there included."""
    async with live(World(says(*LONG, every=0.1)), Tape(limit=1_000)) as it:
        assert await said(it.effects) == "".join(LONG)
        assert it.exchange.tape.overflowed
        assert set(it.exchange.tape.entries[0].items) == {None}
        assert await it.effects.conversations.put("reply", TURN)


async def test_items_stay_while_the_tape_is_within_its_bound() -> None:
    """The bound is on bytes, counted with the arguments."""
    async with live(World(says(*LONG))) as it:
        await said(it.effects)
        assert None not in it.exchange.tape.entries[0].items
        assert not it.exchange.tape.overflowed
        assert it.exchange.tape.usage.size > sum(map(len, LONG))


async def test_other_readers_of_an_overflowed_tape_get_tape_cut() -> None:
    """A shadow cannot be given half a tape: whatever it reads or waits for, it is told."""
    async with live(World(says(*LONG, every=0.1)), Tape(limit=1_000)) as it:
        tailing = asyncio.create_task(said(it.other("nearest").effects()))
        waiting = asyncio.create_task(it.other("nearest").effects().ids.new("reply"))
        serving = asyncio.create_task(said(it.effects))
        with pytest.raises(TapeCut):
            await tailing
        with pytest.raises(TapeCut):
            await waiting
        assert not serving.done()
        await serving
        with pytest.raises(TapeCut):
            await said(it.other("nearest").effects())


async def test_the_arguments_of_tool_calls_count() -> None:
    """A model that streams a file into a tool's arguments fills the tape as well."""
    delta = ToolCallDelta(0, "call", "write", "x" * 2_000)
    async with live(World([Chunk(tool_calls=(delta,))]), Tape(limit=1_000)) as it:
        await said(it.effects)
        assert it.exchange.tape.overflowed


def sharing(budget: Budget, limit: int = 4 << 20) -> Tape:
    """Make a tape that shares a budget."""
    tape = Tape(limit=limit)
    tape.usage.charge(budget)
    return tape


async def test_all_tapes_share_one_budget() -> None:
    """Many small exchanges together may not take more than the process has."""
    budget = Budget(2_500)
    world = World(says(*LONG[:10]))
    async with live(world, sharing(budget)) as first:
        assert await said(first.effects) == "".join(LONG[:10])
        assert not first.exchange.tape.overflowed
        async with live(world, sharing(budget), live=world.live()) as second:
            assert await said(second.effects) == "".join(LONG[:10])
            assert second.exchange.tape.overflowed
        assert not first.exchange.tape.overflowed


async def test_release_returns_the_bytes_back_once() -> None:
    """What a finished exchange held is there for the next; twice is once."""
    budget = Budget(100_000)
    async with live(World(says(*LONG)), sharing(budget)) as it:
        await said(it.effects)
    usage = it.exchange.tape.usage
    assert budget.left == 100_000 - usage.size
    for _ in range(2):
        usage.release()
        assert budget.left == 100_000


async def test_frames_weigh_on_the_common_budget_and_not_on_the_tape() -> None:
    """They are given back with the tape; beyond the limit they are called too heavy."""
    budget = Budget(1_000)
    usage = sharing(budget, limit=600).usage
    usage.add(900, frame=True)
    assert (usage.size, usage.overflowed, usage.frames_overflowed) == (0, False, False)
    assert budget.left == 100
    usage.add(101, frame=True)
    assert (usage.overflowed, usage.frames_overflowed) == (True, True)
    usage.add(1_000, frame=True)
    usage.release()
    assert budget.left == 1_000


async def test_an_overflowed_tape_charges_no_further() -> None:
    """One endless stream must not push every other exchange over the common bound."""
    budget = Budget(100_000)
    async with live(World(says(*(LONG * 50))), sharing(budget, limit=1_000)) as it:
        await said(it.effects)
        assert 100_000 - budget.left <= 1_000 + 148
        it.exchange.tape.usage.release()
        assert budget.left == 100_000


async def test_a_successor_may_read_a_tape_that_overflows_meanwhile() -> None:
    """The bound is met after a takeover: the successor is the serving run and gets everything."""
    async with live(
        World([Chunk(text="a"), Wait(1.0), Chunk(text="b" * 2_000), Wait(1.0), Chunk(text="c")]),
        Tape(limit=1_000),
    ) as it:
        failed = it.world.run(it.exchange, name="graph")
        await anext(failed.effects().model.stream("reply", asking()))
        failed.fence()
        successor = it.world.run(it.exchange, name="legacy")
        assert await said(successor.effects()) == "a" + "b" * 2_000 + "c"
        await turns()


async def test_the_pump_of_an_overflowed_tape_waits_for_its_reader() -> None:
    """No other run may read what it holds: a reader that rests must not find everything there."""
    async with live(World(says(*(LONG * 200))), Tape(limit=1_000)) as it:
        stream = it.effects.model.stream("reply", asking())
        heard = await anext(stream)
        await asyncio.sleep(100.0)
        (entry,) = it.exchange.tape.entries
        assert entry.end == "open"
        assert len([item for item in entry.items if item is not None]) < 1_100
        text = heard.text + "".join([chunk.text async for chunk in stream])
        assert (entry.end, text) == ("complete", "".join(LONG * 200))


async def test_the_pump_of_an_overflowed_tape_ends_with_its_exchange() -> None:
    """A reader that never comes back keeps nothing open."""
    async with live(World(says(*(LONG * 200))), Tape(limit=1_000)) as it:
        await anext(it.effects.model.stream("reply", asking()))
        await asyncio.sleep(100.0)
    assert it.exchange.tape.entries[0].end == "cut"


def test_frames_without_end_outgrow_a_tape_that_is_nearly_empty() -> None:
    """A service behind an address has nothing on the tape, and may answer without end."""
    tape = Tape(limit=100)
    tape.usage.add(FRAMES_FACTOR * 100, frame=True)
    assert not tape.overflowed
    tape.usage.add(1, frame=True)
    assert (tape.overflowed, tape.usage.frames_overflowed) == (True, True)
