"""Ownership: the exchange owns tape, pumps and locks; stacks only read; how each ends."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, NoReturn

import pytest

from contract.errors import EffectFailed, Fault, TapeCut
from contract.model import Chunk, ToolResult
from contract.operations import WriteLimits
from contract.stores import StoredTurn
from contract.workers import WorkerCall
from effects.model import Fail, Hang, ScriptedModel, Wait, says
from effects.tape import Entry
from effects.testing import World
from effects.tools.fake import ScriptedTools
from effects.workers import ScriptedWorkers
from tests.support.collector import without_collector
from tests.support.tape_calls import (
    CONTEXT,
    TURN,
    ContextModel,
    Raising,
    SlowStore,
    asking,
    chunks,
    live,
    said,
    tool,
    turns,
)

pytestmark = pytest.mark.virtual


class Crash(RuntimeError):
    """What a stack raises in these tests."""


async def test_a_pump_has_an_empty_context() -> None:
    """A live call belongs to the exchange: nothing of the asking task's context is seen in it."""
    CONTEXT.set("the stack")
    async with live(World(ContextModel([]))) as it:
        assert await said(it.effects) == "empty"


@pytest.mark.parametrize("cancels", [False, True], ids=["crashed", "cancelled"])
async def test_a_reader_that_ends_stops_nothing(*, cancels: bool) -> None:
    """The stack that asked dies; the model goes on, and the next run reads all of it."""
    async with live(World(says("one ", "two ", "three", every=1.0))) as it:

        async def read() -> NoReturn:
            async for _ in it.effects.model.stream("reply", asking()):
                raise Crash
            raise AssertionError  # the model says something

        reader = asyncio.create_task(read())
        await turns()
        if cancels:
            reader.cancel()
        with pytest.raises(asyncio.CancelledError if cancels else Crash):
            await reader
        assert it.world.model.open == 1
        assert await said(it.other().effects()) == "one two three"
        assert it.world.count("model.stream") == 1
        assert it.exchange.tape.entries[0].end == "complete"


async def test_readers_of_a_cut_entry_get_tape_cut_not_a_cancellation() -> None:
    """When the exchange cancels its pump, its readers get an error they can catch."""
    async with live(World([Chunk(text="half"), Hang()])) as it:
        stream = it.effects.model.stream("reply", asking())
        assert (await anext(stream)).text == "half"
        reader = asyncio.ensure_future(anext(stream))
        await turns()
        await it.exchange.cancel_reads()
        with pytest.raises(TapeCut):
            await reader
        assert it.exchange.tape.entries[0].end == "cut"


async def test_a_pump_cut_before_its_first_step_still_ends_its_entry() -> None:
    """A call made in the last moment before the client leaves does not hang its reader."""
    async with live(World([Hang()])) as it:
        reader = asyncio.create_task(said(it.effects))
        await asyncio.sleep(0)  # the reader has asked; the pump has not begun
        await it.exchange.cancel_reads()
        with pytest.raises(TapeCut):
            await reader
        assert it.world.count("model.stream") == 0


async def test_a_call_after_the_exchange_was_cancelled_is_cut_and_not_made() -> None:
    """No new call is made for a client that has left."""
    async with live() as it:
        await it.exchange.cancel_reads()
        with pytest.raises(TapeCut):
            await it.effects.conversations.put("message", TURN)
        assert it.world.made == []


async def test_model_and_read_only_calls_die_with_the_exchange_at_once() -> None:
    """No time passes between the client's leaving and the end of what only reads."""
    async with live(World([Hang()], tools=ScriptedTools({"look": "x"}, slow={"look": 60.0}))) as it:
        readers = [
            asyncio.create_task(said(it.effects)),
            asyncio.create_task(it.effects.tools.run("tool", tool("look"))),
        ]
        await turns()
        before = asyncio.get_running_loop().time()
        await it.exchange.cancel_reads()
        assert asyncio.get_running_loop().time() == before
        assert it.world.model.cancelled == 1
        ends = await asyncio.gather(*readers, return_exceptions=True)
        assert [type(end) for end in ends] == [TapeCut, TapeCut]


class Limited(ScriptedModel):
    """A model that waits within a time limit of its own, as the real ones do."""

    async def stream(self, *_: object) -> AsyncIterator[Chunk]:
        """Wait."""
        limit = asyncio.timeout(60.0)
        async with limit:
            await asyncio.Event().wait()
        yield Chunk()


async def test_a_call_that_was_cancelled_is_freed_with_its_exchange() -> None:
    """A cancelled call is freed with its exchange, and its tape: no collection is waited for."""
    with without_collector():
        async with live(World(Limited([]))) as it:
            gone = weakref.ref(it.exchange.tape)
            reader = asyncio.create_task(said(it.effects))
            await turns()
            await it.exchange.cancel_reads()
            assert isinstance((await asyncio.gather(reader, return_exceptions=True))[0], TapeCut)
        del it, reader
        await turns()
        assert gone() is None


@pytest.mark.parametrize("port", ["tools", "conversations"])
async def test_a_started_write_finishes_and_is_recorded(port: str) -> None:
    """What changes the world, once started, runs to its end although no reader waits for it."""
    tools = ScriptedTools({"pay": "paid"}, slow={"pay": 5.0}, writes=("pay",))
    async with live(World(tools=tools, conversations=SlowStore(5.0))) as it:
        calls: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
            "tools": lambda: it.effects.tools.run("tool", tool("pay")),
            "conversations": lambda: it.effects.conversations.put("message", TURN),
        }
        reader = asyncio.create_task(calls[port]())
        await turns()
        reader.cancel()
        await it.exchange.cancel_reads()
        (entry,) = it.exchange.tape.entries
        assert entry.end == "open"
    results = {"tools": ToolResult("paid", at=5_000_000), "conversations": StoredTurn(ok=True)}
    assert (entry.end, entry.items) == ("complete", [results[port]])


async def test_a_write_that_outlasts_its_deadline_ends_with_the_fault_deadline() -> None:
    """No write can hold an exchange open for ever."""
    store = SlowStore(100.0)
    async with live(World(conversations=store), write=3.0) as it:
        with pytest.raises(EffectFailed) as failure:
            await it.effects.conversations.put("message", TURN)
    assert failure.value.fault == Fault("deadline", data={"seconds": 3.0})
    assert (asyncio.get_running_loop().time(), store.stored) == (3.0, 0)


class Refusing:
    """A journal that lets nothing begin, after some seconds."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    async def begin(self, _entry: Entry, /) -> bool:
        """Refuse."""
        await asyncio.sleep(self._seconds)
        return self._seconds > 0.0

    async def end(self, _entry: Entry, /) -> None:
        """Store nothing."""


async def test_a_write_that_may_not_be_made_is_not_begun() -> None:
    """Neither where that is denied, nor where no answer comes before its deadline."""
    world = World()
    for journal, ended in ((Refusing(), 0.0), (Refusing(60.0), 3.0)):
        async with live(world, write=3.0, journal=journal) as it:
            with pytest.raises(TapeCut):
                await it.effects.conversations.put("message", TURN)
            assert asyncio.get_running_loop().time() == ended
    assert world.conversations.turns == ()


async def test_a_write_may_take_as_long_as_its_operation_or_tool() -> None:
    """What is not named has the common deadline; a tool's own is never the shorter one."""
    limits = WriteLimits(2.0, {"workers.run": 8.0}, {"pay": 6.0, "book": 1.0})
    slow = {"pay": 60.0, "book": 60.0}
    tools = ScriptedTools({"pay": "", "book": ""}, slow=slow, writes=("pay",))
    workers = ScriptedWorkers({"deploy.build": (Hang(),)})
    world = World(tools=tools, workers=workers, conversations=SlowStore(60.0))
    async with live(world, write=limits) as it:

        async def fails(call: Awaitable[object]) -> float:
            with pytest.raises(EffectFailed, match="deadline"):
                await call
            return asyncio.get_running_loop().time()

        calls: list[Awaitable[object]] = [
            it.effects.conversations.put("message", TURN),
            it.effects.tools.run("tool", tool("pay")),
            it.effects.tools.run("tool", tool("book")),
            anext(it.effects.workers.run("execute", WorkerCall("deploy", "build"))),
        ]
        ends = asyncio.gather(*map(fails, calls))
        await asyncio.sleep(1.0)
        assert len(it.exchange.writes) == 3  # a tool that only reads is none
        assert it.exchange.write_seconds_left == pytest.approx(7.0)
        assert await ends == [2.0, 6.0, 2.0, 8.0]
        assert len(it.exchange.writes) == it.exchange.write_seconds_left == 0


async def test_a_timeout_of_the_adapters_own_is_not_the_deadline() -> None:
    """An adapter that raises TimeoutError by itself did so long before our limit."""
    async with live(World(conversations=Raising(TimeoutError("db-host:5432")))) as it:
        with pytest.raises(EffectFailed) as failure:
            await it.effects.conversations.put("message", TURN)
        assert failure.value.fault == Fault("adapter_failed", data={"kind": "TimeoutError"})


@pytest.mark.parametrize("error", [ValueError("sk-secret"), KeyError("sk-secret"), Crash("x")])
async def test_a_foreign_exception_becomes_adapter_failed_without_its_text(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors on tape are a closed union; the text of a foreign one may hold anything."""
    world = World(conversations=Raising(error), ids=Raising(error), human=Raising(error))
    async with live(world) as it:
        for call in (
            it.effects.conversations.put("message", TURN),
            it.effects.ids.new("reply"),
            it.effects.human.answer("ask", "hitl-1"),
        ):
            with pytest.raises(EffectFailed):
                await call
    expected = Fault("adapter_failed", data={"kind": type(error).__name__})
    ends = [(entry.end, entry.fault) for entry in it.exchange.tape.entries]
    assert ends == [("error", expected)] * 3
    assert len(caplog.records) == 3


async def test_an_answer_that_no_tape_can_hold_is_not_on_it() -> None:
    """The call has failed, and the tape can be written down, for a pause say."""
    async with live(World(tools=ScriptedTools({"dice": "half \ud83d"}))) as it:
        with pytest.raises(EffectFailed, match="adapter_failed"):
            await it.effects.tools.run("tool", tool("dice"))
    assert [entry.items for entry in it.exchange.tape.record()] == [()]


async def test_every_reader_gets_an_error_of_its_own_with_the_same_fault() -> None:
    """An exception object carries a traceback; the tape carries the fault."""
    fault = Fault("model_rate_limited", retryable=True, data={"status": 429})
    async with live(World([Chunk(text="half"), Fail(fault)])) as it:
        errors = []
        for name in ("legacy", "graph"):
            run = it.world.run(it.exchange, name=name)
            with pytest.raises(EffectFailed) as failure:
                await chunks(run.effects())
            errors.append(failure.value)
            assert run.fault == fault
        assert errors[0] is not errors[1]
        assert [error.fault for error in errors] == [fault, fault]
        assert it.world.count("model.stream") == 1


async def test_an_adapter_may_give_the_same_object_twice() -> None:
    """What is recorded is a copy: a constant of the adapter's does not change on the tape."""
    result = ToolResult("4")
    async with live(
        World([Wait(1.0), Chunk(text="x")], tools=ScriptedTools({"dice": result}))
    ) as it:
        first, second = (await chunks(it.effects))[0], (await chunks(it.effects))[0]
        assert (first.at, second.at) == (1_000_000, 2_000_000)
        assert (await it.effects.tools.run("tool", tool("dice"))).at == 2_000_000
        assert result.at == 0


async def free(world: World) -> bool:
    """Whether another exchange can acquire the lock."""
    return await world.live().locks.acquire("other", "key", 60.0)


@pytest.mark.parametrize("releases", [False, True], ids=["crashed", "released"])
async def test_a_lock_is_held_until_the_exchange_ends_and_no_longer(*, releases: bool) -> None:
    """Releasing is the exchange's: a stack's release is noted, and one without leaves no lock."""
    async with live() as it:
        await it.effects.locks.acquire("message", "key", 60.0)
        if releases:
            await it.effects.locks.release("message", "key")
        assert not await free(it.world)
    assert await free(it.world)
    labels = [entry.operation.label for entry in it.exchange.tape.entries]
    assert labels == ["locks.acquire", "locks.release"][: 1 + releases]


async def test_locks_are_released_after_the_writes_have_ended() -> None:
    """No other exchange gets the message while something is still being written for it."""
    async with live(World(conversations=SlowStore(2.0))) as it:
        await it.effects.locks.acquire("message", "key", 60.0)
        writing = asyncio.create_task(it.effects.conversations.put("message", TURN))
        await turns()
        closing = asyncio.create_task(it.exchange.close())
        await asyncio.sleep(1.0)
        assert not await free(it.world)
        await closing
    assert asyncio.get_running_loop().time() == 2.0
    assert await writing
    assert await free(it.world)


async def test_closing_is_idempotent_and_not_stopped_by_cancelling() -> None:
    """The closing task may be cancelled, twice even: the locks are released, then it ends."""
    async with live(World(conversations=SlowStore(2.0))) as it:
        await it.effects.locks.acquire("message", "key", 60.0)
        writing = asyncio.create_task(it.effects.conversations.put("message", TURN))
        await turns()
        closing = asyncio.create_task(it.exchange.close())
        for _ in range(2):
            await turns()
            closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert await writing
    assert it.world.count("locks.release") == 1


async def test_one_lock_that_cannot_be_released_keeps_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A store that fails in its own way is logged; the next lock is released all the same."""
    async with live(World(locks=Raising(ConnectionError("redis://:secret@db")))) as it:
        for key in ("one", "two"):
            assert await it.effects.locks.acquire("message", key, 60.0)
    assert it.world.count("locks.release") == 2
    assert [record.getMessage() for record in caplog.records] == [
        "lock 'two' expires by itself: ConnectionError",
        "lock 'one' expires by itself: ConnectionError",
    ]


async def test_a_lock_acquired_while_the_client_left_is_released() -> None:
    """The acquire was under way; it is seen to its end, and so is the release."""
    async with live(World(locks=Raising(ConnectionError(), 1.0))) as it:
        taking = asyncio.create_task(it.effects.locks.acquire("message", "key", 60))
        await turns()
        await it.exchange.cancel_reads()
    assert await taking
    assert it.world.count("locks.release") == 1
