"""Blocking code: in threads through the loop, on the loop's own thread inline."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

import pytest

from cutover import EffectFailed, Exchange, Run, effect
from cutover.errors import Completed, Fenced
from cutover.tape import Call, call_blocking, current_run
from tests.support.tapes import Broken, World, code, ended, ends, play, start, turn, until, within

made: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    made.clear()


@effect("sync.read", raises=(Broken,))
def read(key: str) -> str:
    """Return a value."""
    assert current_run() is None
    made.append(key)
    if key.startswith("bad"):
        raise Broken(key)
    return f"{key} #{made.count(key)}"


@effect("sync.write", writes=True)
def write(key: str) -> str:
    """Change the world."""
    made.append(key)
    return key


async def _to_thread(work: Callable[..., Any], *args: Any) -> Any:
    return await asyncio.to_thread(work, *args)


async def _executor(work: Callable[..., Any], *args: Any) -> Any:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as pool:
        return await loop.run_in_executor(pool, copy_context().run, work, *args)


async def _thread(work: Callable[..., Any], *args: Any) -> Any:
    result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    context = copy_context()

    def run() -> None:
        try:
            value = context.run(work, *args)
        except Exception as error:  # noqa: BLE001 - handed to the test
            result.get_loop().call_soon_threadsafe(result.set_exception, error)
        else:
            result.get_loop().call_soon_threadsafe(result.set_result, value)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        return await result
    finally:
        await asyncio.to_thread(thread.join)


async def _inline(work: Callable[..., Any], *args: Any) -> Any:
    return work(*args)


WAYS = [_to_thread, _executor, _thread, _inline]


@pytest.mark.parametrize("way", WAYS)
async def test_blocking_effects_are_on_the_tape(way: Callable[..., Any]) -> None:
    """Performed once, by the live run; found by the one that plays, errors included."""
    async with Exchange() as exchange, asyncio.timeout(5):
        for run in (Run(exchange, "legacy"), play(exchange)):
            with run.current():
                assert await way(read, "a") == "a #1"
                with pytest.raises(Broken, match="bad"):
                    await way(read, "bad")
        assert made == ["a", "bad"]
        assert [entry.end for entry in exchange.entries] == ["done", "failed"]


@pytest.mark.parametrize("way", WAYS)
async def test_an_effect_within_a_blocking_effect_is_no_call_of_its_own(
    way: Callable[..., Any],
) -> None:
    """The run is cleared where the effect is performed."""

    @effect("sync.outer")
    def outer() -> str:
        return read("inner")

    async with Exchange() as exchange:
        with Run(exchange, "legacy").current():
            assert await way(outer) == "inner #1"
            assert current_run() is not None
        assert [entry.call.name for entry in exchange.entries] == ["sync.outer"]


async def test_a_thread_waits_for_what_is_under_way(world: World) -> None:
    """It reads an open entry through the loop."""

    async def slow(world: World) -> str:
        return await world.read("k")

    world.hold("k")
    async with Exchange() as exchange:
        first = start(Run(exchange, "legacy"), lambda: slow(world))
        await turn()
        call = exchange.entries[0].call
        run = play(exchange)
        with run.current():
            thread = asyncio.create_task(asyncio.to_thread(_items, run, call))
        await asyncio.sleep(0.01)
        assert not thread.done()
        world.let()
        assert await thread == [b'"k #1"']
        await first


def _items(run: Run, call: Call) -> list[Any]:
    return list(call_blocking(run, call, _never))


def _never() -> Iterator[bytes]:
    for reason in ("it is on the tape",):
        raise AssertionError(reason)
    yield b""


async def test_on_the_loops_thread_an_open_entry_is_refused(world: World) -> None:
    """Waiting would stop the loop for ever; the message says what to do instead."""
    world.hold("k")
    async with Exchange() as exchange:
        first = start(Run(exchange, "legacy"), lambda: world.read("k"))
        await turn()
        run, call = play(exchange), exchange.entries[0].call
        with pytest.raises(EffectFailed, match="event loop's own thread"):
            _items(run, call)
        world.let()
        await first
        assert _items(play(exchange), call) == [b'"k #1"']


async def test_a_finished_entry_of_many_items_is_read_inline(world: World) -> None:
    """Also where a reader lets the loop turn in between, which it cannot here."""
    async with Exchange() as exchange:

        async def drain() -> int:
            return len([one async for one in world.stream("s", 50)])

        assert await within(Run(exchange, "legacy"), drain) == 50
        assert len(_items(play(exchange), exchange.entries[0].call)) == 50


async def test_a_late_blocking_call_is_late_for_its_caller_too() -> None:
    """The tape says `failed`, so the run that performed it must not go on with a result."""
    gate = threading.Event()

    @effect("sync.slow", seconds=0.02, writes=True)
    def slow() -> str:
        gate.wait(5)
        return "too late"

    async with Exchange() as exchange:
        with Run(exchange, "legacy").current():
            task = asyncio.create_task(asyncio.to_thread(slow))
        await until(lambda: ends(exchange) == ["failed"])
        gate.set()
        with pytest.raises(EffectFailed, match="TimeoutError"):
            await task
        with pytest.raises(EffectFailed, match="TimeoutError"), play(exchange).current():
            slow()


async def test_no_deadline_is_left_behind() -> None:
    """A call that has ended holds neither a timer nor its entry."""
    async with Exchange() as exchange:
        with Run(exchange, "legacy").current():
            await asyncio.to_thread(read, "a")
            read("b")
        deadlines = [entry.deadline for entry in exchange.entries]
        assert all(one is not None and one.cancelled() for one in deadlines)


async def test_closing_waits_for_a_write_in_a_thread() -> None:
    """The client leaves; the thread finishes what it has begun."""
    gate, begun = threading.Event(), threading.Event()

    @effect("sync.gated", writes=True)
    def gated() -> None:
        begun.set()
        gate.wait(5)
        made.append("written")

    async with Exchange() as exchange:
        with Run(exchange, "legacy").current():
            task = asyncio.create_task(asyncio.to_thread(gated))
        await asyncio.to_thread(begun.wait)
        closing = asyncio.create_task(exchange.aclose())
        await turn()
        assert not closing.done()
        gate.set()
        await closing
        assert made == ["written"]
        await task


async def test_closing_cuts_a_read_in_a_thread() -> None:
    """A stream read in a thread stops at its next item."""
    gate = threading.Event()

    def numbers() -> Iterator[bytes]:
        for number in range(100):
            yield b"%d" % number
            gate.wait(5)

    async with Exchange() as exchange:
        run = Run(exchange, "legacy")
        call = Call("thread.stream", b"k", b"{}")
        seen: list[Any] = []

        def drain() -> None:
            seen.extend([b"begun"])
            for item in call_blocking(run, call, numbers):
                seen.append(item)  # noqa: PERF402 - one by one

        task = asyncio.create_task(asyncio.to_thread(drain))
        await until(lambda: exchange.entries and exchange.entries[0].items)
    assert exchange.entries[0].end == "cut"
    gate.set()
    assert isinstance(await ended(task), EffectFailed)
    assert seen == [b"begun", b"0"]


async def test_another_reader_that_leaves_cuts_no_call_of_a_thread() -> None:
    """The thread itself is a reader of what it performs."""
    gate = threading.Event()

    def numbers() -> Iterator[bytes]:
        yield b"0"
        gate.wait(5)
        yield b"1"

    async with Exchange() as exchange:
        run, call = Run(exchange, "legacy"), Call("thread.stream", b"k", b"{}")
        task = asyncio.create_task(
            asyncio.to_thread(lambda: list(call_blocking(run, call, numbers)))
        )
        await until(lambda: exchange.entries and exchange.entries[0].items)
        items = play(exchange).call(call, None)  # type: ignore[arg-type]
        assert await anext(items) == b"0"
        await items.aclose()
        await asyncio.sleep(0.06)
        gate.set()
        assert await task == [b"0", b"1"]


async def test_a_stream_left_early_inline_is_cut() -> None:
    """A moment after its generator is closed the entry ends, and what performs it is closed."""
    closed = []

    def numbers() -> Iterator[bytes]:
        try:
            yield b"0"
            yield b"1"
        finally:
            closed.append(1)

    async with Exchange() as exchange:
        items = call_blocking(Run(exchange, "legacy"), Call("s", b"k", b"{}"), numbers)
        assert next(items) == b"0"
        items.close()
        while exchange.entries[0].end == "open":
            await exchange.entries[0].changed.wait()
        assert (closed, exchange.entries[0].end) == ([1], "cut")


def four(performed: list[str]) -> Iterator[bytes]:
    """Yield four items, and note that they were asked for."""
    performed.append("begun")
    yield from (b"0", b"1", b"2", b"3")
    performed.append("ended")


@pytest.mark.parametrize("way", ["inline", "thread", "async"])
@pytest.mark.parametrize("closed", [True, False])
async def test_a_successor_goes_on_with_a_stream_that_a_crash_left(way: str, closed: bool) -> None:
    """A generator that was read inline is read on, by whichever kind of code succeeds its stack."""
    performed: list[str] = []
    call, perform = Call("s", b"k", b"{}", model=True), partial(four, performed)

    async def unused() -> AsyncIterator[bytes]:
        performed.append("a second time")
        yield b""

    async with Exchange() as exchange:
        first, second = Run(exchange, "legacy"), Run(exchange, "graph")
        items = call_blocking(first, call, perform)
        assert [next(items), next(items)] == [b"0", b"1"]
        if closed:
            items.close()
        first.fence()
        if way == "inline":
            found = list(call_blocking(second, call, perform))
        elif way == "thread":
            found = await asyncio.to_thread(lambda: list(call_blocking(second, call, perform)))
        else:
            found = [item async for item in second.call(call, unused)]
        assert found == [b"0", b"1", b"2", b"3"]
        assert performed == ["begun", "ended"]
        items.close()


async def test_inline_code_waits_for_no_thread_that_a_crash_has_left_within_a_step() -> None:
    """That thread waits for the event loop, whose own thread this is."""
    call, going, within_step = (
        Call("s", b"k", b"{}", model=True),
        threading.Event(),
        asyncio.Event(),
    )
    loop = asyncio.get_running_loop()

    def slow() -> Iterator[bytes]:
        loop.call_soon_threadsafe(within_step.set)
        going.wait(5)
        yield b"0"

    async with Exchange() as exchange:
        first, second = Run(exchange, "legacy"), Run(exchange, "graph")
        left = asyncio.create_task(
            asyncio.to_thread(lambda: list(call_blocking(first, call, slow)))
        )
        await within_step.wait()
        first.fence()
        threading.Timer(0.05, going.set).start()
        with pytest.raises(EffectFailed, match="Blocking"):
            list(call_blocking(second, call, _never))
        with pytest.raises(Fenced):
            await left


async def test_a_write_that_its_reader_leaves_is_brought_to_its_end() -> None:
    """What has begun to change the world is not left half done."""
    performed: list[str] = []
    call = Call("s", b"k", b"{}", writes=True)
    async with Exchange() as exchange:
        items = call_blocking(Run(exchange, "legacy"), call, partial(four, performed))
        assert next(items) == b"0"
        items.close()
    assert performed == ["begun", "ended"]
    assert exchange.entries[0].end == "done"


async def test_a_generator_of_a_thread_that_the_loops_thread_collects_does_not_hang(
    world: World,
) -> None:
    """Garbage is collected in any thread: closing must not wait for the loop on the loop."""
    async with Exchange() as exchange, asyncio.timeout(5):

        async def drain() -> None:
            async for _ in world.stream("s"):
                pass

        await within(Run(exchange, "legacy"), drain)
        call = exchange.entries[0].call
        kept: list[Any] = []

        def begin() -> None:
            items = call_blocking(play(exchange), call, _never)
            next(items)
            kept.append(items)

        await asyncio.to_thread(begin)
        kept.clear()
        gc.collect()
        await turn()


async def test_a_fenced_run_is_refused_in_threads() -> None:
    """Threads cannot be cancelled, but their calls can be refused."""
    async with Exchange() as exchange:
        run = Run(exchange, "legacy")
        run.fence()
        with run.current():
            with pytest.raises(Fenced):
                await asyncio.to_thread(write, "a")
            with pytest.raises(Fenced):
                write("b")
    assert made == []


async def test_a_blocking_miss_of_a_play_is_decided_by_the_run() -> None:
    """As for asynchronous code: the nearest, or the end."""
    async with Exchange() as exchange:
        with Run(exchange, "legacy").current():
            read("a")
    run = play(exchange)
    with run.current():
        assert read("b") == "a #1"
        with pytest.raises(Exception, match=r"sync\.write"):
            await asyncio.to_thread(write, "a")
    assert code(run) == "tape_miss"


async def test_system_exit_of_blocking_code_ends_its_call_and_ctrl_c_the_program() -> None:
    """The first is a failure like others; the second goes through, its entry is cut."""

    @effect("sync.exits")
    def exits(error: str) -> None:
        raise {"exit": SystemExit, "ctrl-c": KeyboardInterrupt}[error]

    async with Exchange() as exchange:
        with Run(exchange, "legacy").current():
            with pytest.raises(EffectFailed, match="SystemExit"):
                exits("exit")
            with pytest.raises(KeyboardInterrupt):
                exits("ctrl-c")
        assert [entry.end for entry in exchange.entries] == ["failed", "cut"]


@pytest.mark.parametrize("policy", ["live", "play"])
async def test_another_event_loop_reads_and_performs_through_the_exchanges(
    world: World, policy: str
) -> None:
    """A tool in a thread calls `asyncio.run`: its calls are on the tape, and tailed."""

    async def stack() -> list[Any]:
        numbers = [number async for number in world.stream("s")]
        return [await world.read("a"), await world.write("b"), numbers]

    async with Exchange() as exchange, asyncio.timeout(5):
        expected = ["a #1", "b #1", [0, 1, 2, 3, 4]]
        if policy == "play":
            assert await within(Run(exchange, "legacy"), stack) == expected
        run = Run(exchange, "graph", "serving", policy)  # type: ignore[arg-type]
        with run.current():
            assert await asyncio.to_thread(lambda: asyncio.run(stack())) == expected
        run.end(Completed())
    assert world.done == ["s", "a", "b"]


async def test_a_read_on_another_loop_that_is_cancelled_leaves_no_reader(world: World) -> None:
    """Cancelling there closes the read here."""
    world.hold("k")

    async def impatient() -> None:
        async with asyncio.timeout(0.01):
            await world.read("k")

    async with Exchange() as exchange:
        run = Run(exchange, "legacy")
        with run.current(), pytest.raises(TimeoutError):
            await asyncio.to_thread(lambda: asyncio.run(impatient()))
        await until(lambda: ends(exchange) == ["cut"])
        assert run.waiting == 0
