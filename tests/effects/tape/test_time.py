"""Time: stamps are whole microseconds of the exchange, and tell whether a stack is stalled."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.model import Chunk
from effects.model import Step, Wait, says
from effects.tape import Exchange, Tape
from effects.testing import VirtualLoop, World
from effects.tools.fake import ScriptedTools
from tests.support.tape_calls import SlowIds, asking, chunks, live, tool, turns


@pytest.mark.virtual
async def test_stamps_are_whole_microseconds_since_the_exchange_began() -> None:
    """Not since the process or the loop began, and never a float."""
    await asyncio.sleep(100.0)
    async with live(World([Wait(0.123456789), Chunk(text="x")])) as it:
        (chunk,) = await chunks(it.effects)
        assert chunk.at == 123_456
        assert type(chunk.at) is int
        entry = it.exchange.tape.entries[0]
        assert (entry.at, entry.ended) == (0, 123_456)


@pytest.mark.virtual
async def test_a_stamp_is_the_same_for_recorder_reader_and_record() -> None:
    """It is quantised at once: a decision by it comes out the same on a replay."""
    async with live(World(says("a", "b", "c", every=0.3333333))) as it:
        recorded = await chunks(it.effects)
    loaded = it.world.exchange(Tape.load(it.exchange.tape.record()))
    assert await chunks(it.world.run(loaded, "fail").effects()) == recorded
    assert [chunk.at for chunk in recorded[:3]] == [333_333, 666_666, 999_999]


@pytest.mark.virtual
async def test_a_tools_result_carries_the_moment_it_came() -> None:
    """Feedback is throttled by it."""
    tools = ScriptedTools({"dice": "4"}, slow={"dice": 1.5})
    async with live(World(tools=tools)) as it:
        assert (await it.effects.tools.run("tool", tool("dice"))).at == 1_500_000


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

    async def recorded() -> Tape:
        async with live(World(steps)) as it:
            await chunks(it.effects)
        return it.exchange.tape

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        tape = runner.run(recorded())
    (entry,) = tape.entries
    stamps = [entry.at, *(item.at for item in entry.items), entry.ended]
    assert stamps == sorted(stamps)
    assert tape.last_stamp == entry.ended


@pytest.mark.virtual
async def test_a_stack_is_not_idle_while_it_waits_for_the_world() -> None:
    """Silence of the provider is the provider's: it never makes a stack look stalled."""
    run = World([Wait(60.0), Chunk(text="x"), Wait(60.0)]).run()
    reading = asyncio.create_task(chunks(run.effects()))
    for _ in range(2):
        await turns()
        assert run.idle_since() is None
        await asyncio.sleep(30.0)
        assert run.idle_since() is None
        await asyncio.sleep(31.0)
    await reading


@pytest.mark.virtual
async def test_a_stack_is_idle_since_it_got_something() -> None:
    """The last item, the last call, or the last frame starts the time."""
    async with live(World([Wait(2.0), Chunk(text="x"), Wait(100.0)])) as it:
        assert it.run.idle_since() == 0
        await anext(it.effects.model.stream("reply", asking()))
        await asyncio.sleep(5.0)  # the stack does something else with its item
        assert it.run.idle_since() == 2_000_000
        await it.effects.clock.now("prompt")
        assert it.run.idle_since() == 7_000_000
        await asyncio.sleep(1.0)
        it.run.touch()
        assert it.run.idle_since() == 8_000_000


@pytest.mark.virtual
async def test_a_shadow_that_waits_for_a_call_not_made_yet_is_not_idle() -> None:
    """It is not stalled because the served run is slow."""
    async with live() as it:
        run = it.other("nearest")
        reading = asyncio.create_task(run.effects().ids.new("reply"))
        await asyncio.sleep(10.0)
        assert run.idle_since() is None
        await it.effects.ids.new("reply")
        assert await reading == "id-1"
        assert run.idle_since() == 10_000_000


@pytest.mark.virtual
async def test_one_of_several_calls_under_way_is_enough_to_be_waiting() -> None:
    """Parallel nodes: as long as any call waits for the world, the stack is not stalled."""
    tools = ScriptedTools({"fast": "x", "slow": "y"}, slow={"fast": 1.0, "slow": 9.0})
    async with live(World(tools=tools)) as it:
        tasks = [
            asyncio.create_task(it.effects.tools.run("tool", tool(name, name)))
            for name in ("fast", "slow")
        ]
        await asyncio.sleep(5.0)
        assert it.run.idle_since() is None
        await asyncio.gather(*tasks)
        assert it.run.idle_since() == 9_000_000


@pytest.mark.virtual
async def test_a_slow_instant_is_still_the_worlds() -> None:
    """An operation answered on the spot may be answered slowly by a user's own adapter."""
    run = World(ids=SlowIds()).run()
    naming = asyncio.create_task(run.effects().ids.new("reply"))
    await asyncio.sleep(1.0)
    assert run.idle_since() is None
    assert await naming == "late"
    assert run.idle_since() == 3_000_000
