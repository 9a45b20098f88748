"""Who performs: the exchange. Runs only read; what they leave ends, or stays for a successor."""

import asyncio
from contextlib import suppress
from contextvars import ContextVar
from typing import Literal

import pytest
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from cutover import EffectFailed, Exchange, Run, effect
from cutover.tape import at_end, current_run
from tests.support.tapes import World, ended, ends, start, turn, within

tenant: ContextVar[str] = ContextVar("tenant", default="")


async def test_a_crashed_run_stops_no_performance(world: World) -> None:
    """The stack fails while its call is under way: its successor finds the call and tails it."""
    world.hold("s/3")
    async with Exchange() as exchange:
        first = Run(exchange, "legacy")

        async def crash() -> None:
            async for number in world.stream("s"):
                if number == 2:
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await within(first, crash)
        first.fence()
        world.let()
        second = Run(exchange, "graph", "fallback")
        assert await within(second, lambda: _numbers(world)) == [0, 1, 2, 3, 4]
        assert world.begun == ["s"]


async def _numbers(world: World, count: int = 5) -> list[int]:
    return [number async for number in world.stream("s", count)]


@pytest.mark.virtual
@pytest.mark.parametrize(("crashed", "end"), [("live", "open"), ("play", "cut")])
async def test_a_crash_that_is_told_later_keeps_its_read(
    world: World, crashed: Literal["live", "play"], end: str
) -> None:
    """Until its successor takes it; a shadow's crash keeps nothing."""
    world.hold("s/3")
    async with Exchange() as exchange:
        served = Run(exchange, "legacy")
        run = served if crashed == "live" else Run(exchange, "graph", "shadow", "play")

        async def leave() -> None:
            async for _ in world.stream("s"):
                break

        await within(served, leave)
        if run is not served:
            await within(run, leave)
        run.keep_reads()
        await asyncio.sleep(0.1)
        assert ends(exchange) == [end]


@pytest.mark.virtual
async def test_a_read_is_cut_soon_after_its_last_reader_left(world: World) -> None:
    """Closing early stops the performance within 100 ms, and the entry ends `cut`."""
    world.hold("s/3")
    async with Exchange() as exchange:
        run = Run(exchange, "legacy")

        async def leave() -> None:
            async for _ in world.stream("s"):
                break

        await within(run, leave)
        assert ends(exchange) == ["open"]
        await asyncio.sleep(0.1)
        assert ends(exchange) == ["cut"]
        assert world.done == []


@pytest.mark.virtual
async def test_a_read_of_a_fenced_run_stays_for_its_successor(world: World) -> None:
    """The fence comes after the run has left, and the successor a while later."""
    world.hold("s/3")
    async with Exchange() as exchange:
        first = Run(exchange, "legacy")
        task = start(first, lambda: _numbers(world))
        await turn()
        task.cancel()
        await ended(task)
        await asyncio.sleep(0.01)
        first.fence()
        await asyncio.sleep(3)
        second = Run(exchange, "graph", "fallback")
        tail = start(second, lambda: _numbers(world))
        await turn()
        world.let()
        assert await tail == [0, 1, 2, 3, 4]


@pytest.mark.virtual
async def test_a_successor_that_leaves_cuts_the_read_it_took_over(world: World) -> None:
    """A fenced run that swallows its cancellation, and so never closes, keeps no call alive."""
    world.hold("s/3")
    async with Exchange() as exchange:
        stuck = asyncio.Event()
        first = Run(exchange, "legacy")

        async def stay() -> None:
            async for _ in world.stream("s"):
                await stuck.wait()

        task = start(first, stay)
        await turn()
        first.fence()
        second = start(Run(exchange, "graph", "fallback"), lambda: _numbers(world))
        await turn()
        second.cancel()
        await asyncio.sleep(0.1)
        assert exchange.entries[0].end == "cut"
        stuck.set()
        await ended(task)


@pytest.mark.virtual
async def test_leaving_an_exchange_cuts_reads_and_awaits_writes(world: World) -> None:
    """The client leaves: a read dies at once, a write that has begun is done to its end."""
    world.hold("r")

    @effect("slow.write", writes=True)
    async def slow() -> None:
        await asyncio.sleep(2)
        world.done.append("w")

    async with Exchange() as exchange:
        run = Run(exchange, "legacy")
        tasks = [start(run, lambda: world.read("r")), start(run, slow)]
        await turn()
        for task in tasks:
            task.cancel()
    assert {one.call.name: one.end for one in exchange.entries} == {
        "world.read": "cut",
        "slow.write": "done",
    }
    assert asyncio.get_running_loop().time() == 2
    assert world.done == ["w"]


@pytest.mark.virtual
async def test_a_write_has_a_deadline(world: World) -> None:
    """A write that hangs ends `failed` after its `seconds`, and holds the exchange no longer."""
    world.hold("w")
    async with Exchange() as exchange:
        task = start(Run(exchange, "legacy"), lambda: world.write("w"))
        await turn()
        task.cancel()
    [entry] = exchange.entries
    assert entry.end == "failed"
    assert entry.fault is not None
    assert entry.fault.kind == "TimeoutError"
    assert "5 s" in entry.fault.message
    assert asyncio.get_running_loop().time() == 5


@pytest.mark.virtual
async def test_closing_outlives_a_caller_that_is_cancelled(world: World) -> None:
    """Callbacks of `at_end` run although the task that closes the exchange is cancelled."""
    world.hold("w")
    exchange = Exchange()

    @effect("lock", writes=True)
    async def lock() -> None:
        async def release() -> None:
            world.done.append("released")

        at_end(release)

    run = Run(exchange, "legacy")
    await within(run, lock)
    write = start(run, lambda: world.write("w"))
    await turn()
    closing = asyncio.create_task(exchange.aclose())
    await turn()
    closing.cancel()
    assert isinstance(await ended(closing), asyncio.CancelledError)
    world.let()
    await exchange.aclose()
    await write
    assert world.done == ["w", "released"]


async def test_at_end_runs_the_last_first_and_survives_failures() -> None:
    """One callback that fails, even with SystemExit, takes no other with it."""
    said: list[int] = []

    @effect("registers")
    async def registers() -> None:
        for number in range(4):

            async def callback(number: int = number) -> None:
                said.append(number)
                if number == 1:
                    raise ZeroDivisionError
                if number == 2:
                    raise SystemExit

            at_end(callback)

    async with Exchange() as exchange:
        await within(Run(exchange, "legacy"), registers)
        assert said == []
    assert said == [3, 2, 1, 0]


async def test_a_callback_registered_after_the_end_runs_at_once() -> None:
    """A lock that was taken while the exchange closed is released all the same."""
    said: list[str] = []

    async def callback() -> None:
        said.append("released")

    async with Exchange() as exchange:
        pass
    exchange.at_end(callback)
    await turn()
    assert said == ["released"]


async def test_an_effect_sees_its_callers_context_and_no_run(world: World) -> None:
    """Tenant and trace stay, the run is cleared: what an effect does is on the tape once."""

    @effect("outer")
    async def outer() -> str:
        assert current_run() is None
        return f"{tenant.get()} {await world.read('inner')}"

    async with Exchange() as exchange:
        run = Run(exchange, "legacy")
        tenant.set("acme")
        assert await within(run, outer) == "acme inner #1"
        assert [one.call.name for one in exchange.entries] == ["outer"]


class _State(TypedDict):
    said: str


async def test_an_effect_in_a_node_reaches_the_graphs_stream_writer() -> None:
    """LangGraph's writer is found in the context in which the call is performed."""

    @effect("speaks")
    async def speaks() -> str:
        get_stream_writer()("from within")
        return "done"

    async def node(state: _State) -> _State:
        return {"said": state["said"] + await speaks()}

    graph: StateGraph[_State, None, _State, _State] = StateGraph(_State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    app = graph.compile()
    async with Exchange() as exchange:

        async def stream() -> list[object]:
            return [part async for part in app.astream({"said": ""}, stream_mode="custom")]

        assert await within(Run(exchange, "graph"), stream) == ["from within"]


async def test_system_exit_ends_its_call_alone() -> None:
    """An effect that exits fails as any other, and the process lives."""

    @effect("exits")
    async def exits() -> None:
        raise SystemExit(3)

    async with Exchange() as exchange:
        with pytest.raises(EffectFailed, match="SystemExit"):
            await within(Run(exchange, "legacy"), exits)
        assert exchange.entries[0].end == "failed"


async def test_a_call_that_cancels_itself_fails_and_cancels_no_reader() -> None:
    """A stray CancelledError within an effect is an error of that effect."""

    @effect("strays", writes=True)
    async def strays() -> None:
        raise asyncio.CancelledError

    async with Exchange() as exchange:
        with pytest.raises(EffectFailed, match="CancelledError"):
            await within(Run(exchange, "legacy"), strays)
        assert exchange.entries[0].end == "failed"


def test_keyboard_interrupt_goes_through() -> None:
    """Ctrl-C in an effect stops the program, and its entry is cut."""
    entries = []

    @effect("interrupts")
    async def interrupts() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        async with Exchange() as exchange:
            entries.append(exchange.entries)
            with suppress(EffectFailed):
                await within(Run(exchange, "legacy"), interrupts)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert [one.end for one in entries[0]] == ["cut"]


async def test_what_a_live_run_calls_after_its_end_is_off_the_tape_and_counted(
    world: World,
) -> None:
    """Background tasks go on working; the tape does not change behind the record."""
    async with Exchange() as exchange:
        run = Run(exchange, "legacy")
        await within(run, lambda: world.read("a"))
    assert await within(run, lambda: world.read("b")) == "b #1"
    assert len(exchange.entries) == 1
    assert exchange.off_tape == {"world.read": 1}
