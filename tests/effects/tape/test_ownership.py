"""Ownership: the exchange owns tape and pumps; stacks only read; what ends them, and how."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

import pytest

from contract.errors import EffectFailed, Fault, TapeCut
from contract.model import Chunk, ToolResult
from effects.model import Fail, Hang, Wait, says
from effects.testing import World
from effects.tools.fake import ScriptedTools
from tests.effects.tape.calls import TURN, asking, chunks, said, tool, turns
from tests.effects.tape.odd_ports import WHO, NosyModel, Raising, SlowStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


pytestmark = pytest.mark.virtual


class Crash(RuntimeError):
    """What a stack raises in these tests."""


async def test_a_pump_has_an_empty_context() -> None:
    """A live call belongs to the exchange: nothing of the asking task's context is seen in it."""
    world = World(NosyModel([]))
    WHO.set("the stack")
    exchange = world.exchange()
    assert await said(world.run(exchange).effects()) == "nobody"
    await exchange.close()


async def test_a_crashed_reader_stops_nothing() -> None:
    """The stack that asked dies; the model goes on, and the next run reads all of it."""
    world = World(says("one ", "two ", "three", every=1.0))
    exchange = world.exchange()

    async def crashing() -> NoReturn:
        async for _ in world.run(exchange).effects().model.stream("reply", asking()):
            raise Crash
        raise AssertionError  # the model says something

    with pytest.raises(Crash):
        await crashing()
    assert await said(world.run(exchange).effects()) == "one two three"
    assert world.count("model.stream") == 1
    assert exchange.tape.entries[0].end == "complete"
    await exchange.close()


async def test_a_cancelled_reader_stops_nothing() -> None:
    """Cancelling the task of a stack does not reach the pump."""
    world = World(says("one ", "two", every=1.0))
    exchange = world.exchange()
    reader = asyncio.create_task(said(world.run(exchange).effects()))
    await turns()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert world.model.open == 1
    assert await said(world.run(exchange).effects()) == "one two"
    await exchange.close()


async def test_readers_of_a_cut_entry_get_tape_cut_not_a_cancellation() -> None:
    """When the exchange cancels its pump, whoever reads is told in words it can catch."""
    world = World([Chunk(text="half"), Hang()])
    exchange = world.exchange()
    effects = world.run(exchange).effects()
    stream = effects.model.stream("reply", asking())
    assert (await anext(stream)).text == "half"
    reader = asyncio.create_task(_next(stream))
    await turns()
    await exchange.cancel_reads()
    with pytest.raises(TapeCut):
        await reader
    assert exchange.tape.entries[0].end == "cut"
    await exchange.close()


async def _next(stream: AsyncIterator[Chunk]) -> Chunk:
    return await anext(stream)


async def test_a_pump_cut_before_its_first_step_still_ends_its_entry() -> None:
    """A call made in the last moment before the client leaves does not hang its reader."""
    world = World([Hang()])
    exchange = world.exchange()
    reader = asyncio.create_task(said(world.run(exchange).effects()))
    await asyncio.sleep(0)  # the reader has asked; the pump has not begun
    await exchange.cancel_reads()
    with pytest.raises(TapeCut):
        await reader
    assert world.count("model.stream") == 0
    await exchange.close()


async def test_a_call_after_the_exchange_was_abandoned_is_cut_and_not_made() -> None:
    """Nothing new is asked of the world for a client that has left."""
    world = World()
    exchange = world.exchange()
    await exchange.cancel_reads()
    with pytest.raises(TapeCut):
        await world.run(exchange).effects().conversations.put("message", TURN)
    assert world.made == []
    await exchange.close()


async def test_model_and_read_only_calls_die_with_the_exchange_at_once() -> None:
    """No time passes between the client's leaving and the end of what only reads."""
    world = World([Hang()], tools=ScriptedTools({"look": "x"}, slow={"look": 60.0}))
    exchange = world.exchange()
    effects = world.run(exchange).effects()
    readers = [
        asyncio.create_task(said(effects)),
        asyncio.create_task(effects.tools.run("tool", tool("look"))),
    ]
    await turns()
    before = asyncio.get_running_loop().time()
    await exchange.cancel_reads()
    assert asyncio.get_running_loop().time() == before
    assert world.model.cancelled == 1
    ends = await asyncio.gather(*readers, return_exceptions=True)
    assert [type(end) for end in ends] == [TapeCut, TapeCut]
    await exchange.close()


async def test_a_tool_that_is_not_read_only_finishes_and_is_recorded() -> None:
    """What changes the world, once started, is seen to its end although nobody waits for it."""
    tools = ScriptedTools({"pay": "paid"}, slow={"pay": 5.0}, writes=("pay",))
    world = World(tools=tools)
    exchange = world.exchange()
    reader = asyncio.create_task(world.run(exchange).effects().tools.run("tool", tool("pay")))
    await turns()
    reader.cancel()
    await exchange.cancel_reads()
    await exchange.close()
    entry = exchange.tape.entries[0]
    assert (entry.end, entry.items) == ("complete", [ToolResult("paid", at=5_000_000)])


async def test_a_started_write_finishes_and_is_recorded() -> None:
    """The same holds for stores."""
    store = SlowStore(2.0)
    world = World(conversations=store)
    exchange = world.exchange()
    reader = asyncio.create_task(world.run(exchange).effects().conversations.put("message", TURN))
    await turns()
    reader.cancel()
    await exchange.cancel_reads()
    before = store.stored
    await exchange.close()
    assert (before, store.stored) == (0, 1)
    assert exchange.tape.entries[0].end == "complete"


async def test_a_write_that_outlasts_its_deadline_ends_with_the_fault_deadline() -> None:
    """No write can hold an exchange open for ever."""
    store = SlowStore(100.0)
    world = World(conversations=store)
    exchange = world.exchange(write=3.0)
    with pytest.raises(EffectFailed) as failure:
        await world.run(exchange).effects().conversations.put("message", TURN)
    assert failure.value.fault == Fault("deadline", data={"seconds": 3.0})
    assert asyncio.get_running_loop().time() == 3.0
    await exchange.close()
    assert store.stored == 0


async def test_a_write_nobody_says_is_ours_is_not_begun() -> None:
    """Neither where that is denied, nor where nobody says so before its deadline."""

    async def denied() -> bool:
        return False

    async def unanswered() -> bool:
        await asyncio.sleep(60.0)
        return True

    world = World()
    for covered, ended in ((denied, 0.0), (unanswered, 3.0)):
        exchange = world.exchange(write=3.0, may_write=covered)
        with pytest.raises(TapeCut):
            await world.run(exchange).effects().conversations.put("message", TURN)
        assert asyncio.get_running_loop().time() == ended
        await exchange.close()
    assert world.conversations.turns == ()


async def test_a_timeout_of_the_adapters_own_is_not_the_deadline() -> None:
    """An adapter that raises TimeoutError by itself did so long before our limit."""
    world = World(conversations=Raising(TimeoutError("db-host:5432")))
    exchange = world.exchange()
    with pytest.raises(EffectFailed) as failure:
        await world.run(exchange).effects().conversations.put("message", TURN)
    assert failure.value.fault == Fault("adapter_failed", data={"kind": "TimeoutError"})
    await exchange.close()


@pytest.mark.parametrize("error", [ValueError("sk-secret"), KeyError("sk-secret"), Crash("x")])
async def test_a_foreign_exception_becomes_adapter_failed_without_its_text(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors on tape are a closed union; the text of a foreign one may hold anything."""
    world = World(conversations=Raising(error), ids=Raising(error), human=Raising(error))
    exchange = world.exchange()
    effects = world.run(exchange).effects()
    for call in (
        effects.conversations.put("message", TURN),
        effects.ids.new("reply"),
        effects.human.answer("ask", "hitl-1"),
    ):
        with pytest.raises(EffectFailed):
            await call
    await exchange.close()
    expected = Fault("adapter_failed", data={"kind": type(error).__name__})
    assert [entry.fault for entry in exchange.tape.entries] == [expected] * 3
    assert {entry.end for entry in exchange.tape.entries} == {"error"}
    assert len(caplog.records) == 3


async def test_an_answer_that_no_tape_can_hold_is_not_on_it() -> None:
    """The call has failed, and the tape can be written down, for a pause say."""
    world = World(tools=ScriptedTools({"dice": "half \ud83d"}))
    exchange = world.exchange()
    with pytest.raises(EffectFailed) as failure:
        await world.run(exchange).effects().tools.run("tool", tool("dice"))
    assert failure.value.fault.code == "adapter_failed"
    await exchange.close()
    assert [entry.items for entry in exchange.tape.record()] == [()]


async def test_every_reader_gets_an_error_of_its_own_with_the_same_fault() -> None:
    """An exception object carries a traceback; the tape carries the fault."""
    fault = Fault("model_rate_limited", retryable=True, data={"status": 429})
    world = World([Chunk(text="half"), Fail(fault)])
    exchange = world.exchange()
    errors = []
    for name in ("legacy", "graph"):
        run = world.run(exchange, name=name)
        with pytest.raises(EffectFailed) as failure:
            await chunks(run.effects())
        errors.append(failure.value)
        assert run.fault == fault
    assert errors[0] is not errors[1]
    assert [error.fault for error in errors] == [fault, fault]
    assert world.count("model.stream") == 1
    await exchange.close()


async def test_an_adapter_may_give_the_same_object_twice() -> None:
    """What is recorded is a copy: a constant of the adapter's does not change on the tape."""
    result = ToolResult("4")
    world = World([Wait(1.0), Chunk(text="x")], tools=ScriptedTools({"dice": result}))
    exchange = world.exchange()
    effects = world.run(exchange).effects()
    first, second = (await chunks(effects))[0], (await chunks(effects))[0]
    assert (first.at, second.at) == (1_000_000, 2_000_000)
    assert (await effects.tools.run("tool", tool("dice"))).at == 2_000_000
    assert result.at == 0
    await exchange.close()
