"""Time and order: stamps are whole microseconds of the exchange, the same on every replay."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.model import Chunk
from effects.model import Wait, says
from effects.tape import Exchange, Tape
from effects.testing import VirtualLoop, World
from effects.tools.fake import ScriptedTools
from tests.effects.tape.calls import chunks, tool

if TYPE_CHECKING:
    from effects.model import Step


@pytest.mark.virtual
async def test_stamps_are_whole_microseconds_since_the_exchange_began() -> None:
    """Not since the process or the loop began, and never a float."""
    await asyncio.sleep(100.0)
    world = World([Wait(0.123456789), Chunk(text="x")])
    exchange = world.exchange()
    (chunk,) = await chunks(world.run(exchange).effects())
    assert chunk.at == 123_456
    assert type(chunk.at) is int
    entry = exchange.tape.entries[0]
    assert (entry.at, entry.ended) == (0, 123_456)
    await exchange.close()


@pytest.mark.virtual
async def test_a_stamp_is_the_same_object_for_recorder_reader_and_record() -> None:
    """It is quantised before anybody sees it: a decision by it comes out the same on a replay."""
    world = World(says("a", "b", "c", every=0.3333333))
    exchange = world.exchange()
    live = await chunks(world.run(exchange).effects())
    await exchange.close()
    loaded = world.exchange(Tape.load(exchange.tape.record()))
    assert await chunks(world.run(loaded, "fail").effects()) == live
    assert [chunk.at for chunk in live[:3]] == [333_333, 666_666, 999_999]


@pytest.mark.virtual
async def test_a_tools_result_carries_the_moment_it_came() -> None:
    """Feedback is throttled by it."""
    world = World(tools=ScriptedTools({"dice": "4"}, slow={"dice": 1.5}))
    exchange = world.exchange()
    assert (await world.run(exchange).effects().tools.run("tool", tool("dice"))).at == 1_500_000
    await exchange.close()


@given(
    waits=st.lists(st.floats(0, 1e6, allow_nan=False), max_size=20),
    began=st.floats(0, 1e9, allow_nan=False),
)
def test_stamps_never_decrease(waits: list[float], began: float) -> None:
    """Whatever the clock's floats round to, later items have later or equal stamps."""
    now = began
    exchange = Exchange(World().effects, monotonic=lambda: now)
    stamps = [exchange.stamp()]
    for wait in waits:
        now += wait
        stamps.append(exchange.stamp())
    assert stamps == sorted(stamps)
    assert stamps[0] == 0


@given(after=st.integers(1, 10**13), began=st.floats(0, 1e7, allow_nan=False))
def test_an_exchange_that_goes_on_never_stamps_before_its_tape(after: int, began: float) -> None:
    """After a pause of days the exchange's own time continues where its tape ends."""
    exchange = Exchange(World().effects, monotonic=lambda: began, after=after)
    assert after <= exchange.stamp() <= after + 2


@given(st.lists(st.floats(0, 5, allow_nan=False), min_size=1, max_size=12))
def test_the_stamps_of_an_entry_never_decrease(waits: list[float]) -> None:
    """From the call over its items to its end."""
    steps: list[Step] = [step for wait in waits for step in (Wait(wait), Chunk(text="x"))]
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        tape = runner.run(_recorded(steps))
    (entry,) = tape.entries
    stamps = [entry.at, *(item.at for item in entry.items), entry.ended]
    assert stamps == sorted(stamps)
    assert tape.last_stamp == entry.ended


async def _recorded(steps: list[Step]) -> Tape:
    world = World(steps)
    exchange = world.exchange()
    await chunks(world.run(exchange).effects())
    await exchange.close()
    return exchange.tape
