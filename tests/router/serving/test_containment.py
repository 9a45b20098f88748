"""Stacks and tools that ask for the end of the process: they end, everybody else goes on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any

import pytest

from contract.errors import EffectFailed
from contract.ports import Effects
from effects.tape import Tape
from effects.tasks import ExitContained, contained
from effects.testing import World
from router.stack import StackName
from tests.support.faulty_stacks import Act, after, hang
from tests.support.tape_calls import TURN
from tests.support.tool_replies import ASSIGNED, FLOWS, both, nothing_twice, other, undisturbed

pytestmark = pytest.mark.virtual


async def exits() -> None:
    """Do what a command line does."""
    await asyncio.sleep(0.01)
    sys.exit(1)


async def interrupts() -> None:
    """Do what Ctrl-C does."""
    await asyncio.sleep(0.01)
    raise KeyboardInterrupt


class Panicked(BaseException):
    """What a library written in Rust raises when it panics: no `Exception`."""


async def panics() -> None:
    """Do what such a library does."""
    await asyncio.sleep(0.01)
    raise Panicked


Ends = Callable[[], Awaitable[None]]
ENDS: list[Ends] = [exits, interrupts]


def awaited(ends: Ends) -> Act:
    """End in a task that the stack waits for."""

    async def act(_: Effects) -> None:
        await asyncio.ensure_future(ends())

    return act


def forgotten(ends: Ends) -> Act:
    """Exit in a task that is not awaited, while the stack does something else."""

    async def act(effects: Effects) -> None:
        task = asyncio.ensure_future(ends())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await hang(effects)

    return act


def itself(ends: Ends) -> Act:
    """End in the stack's own task."""

    async def act(_: Effects) -> None:
        await ends()

    return act


WAYS = [*product(ENDS, [awaited, forgotten, itself]), (panics, awaited), (panics, itself)]


@pytest.mark.parametrize("assigned", ASSIGNED)
@pytest.mark.parametrize(("ends", "where"), WAYS)
async def test_the_end_a_stack_asks_for_is_its_own(
    assigned: StackName, ends: Ends, where: Callable[[Ends], Act]
) -> None:
    """It has crashed, at once: the other one takes over."""
    whole = await undisturbed(assigned)
    broken = after(FLOWS[assigned], 4, where(ends))
    async with both(assigned, broken, FLOWS[other(assigned)]) as made:
        served = await made.ask()
        assert served.wire == whole
        nothing_twice(made)
        error = made.runs[0].error
        assert error is not None
        assert error.code == "crash"
        assert made.router.counts.takeovers == 1
        assert served.frames[-1][0] - served.frames[0][0] < 5.0


@pytest.mark.parametrize(("ends", "where"), WAYS)
async def test_the_end_a_candidate_asks_for_is_compared(
    ends: Ends, where: Callable[[Ends], Act]
) -> None:
    """In the shadow, too, it is a finding about that stack."""
    broken = after(FLOWS["graph"], 4, where(ends))
    async with both("legacy", FLOWS["legacy"], broken, shadow=100) as made:
        await made.ask()
        assert made.states == {"compared(different)": 1}
        assert made.runs[1].error is not None
        assert made.runs[1].error.code == "crash"


@pytest.mark.parametrize("ends", [*ENDS, panics])
@pytest.mark.parametrize("child", [True, False])
async def test_an_adapter_that_asks_for_the_end_has_failed(ends: Ends, child: bool) -> None:
    """What stands below the ports is contained as well, and ends on the tape."""

    class Store:
        async def put(self, _site: str, _turn: object) -> bool:
            await (asyncio.ensure_future(ends()) if child else ends())
            return True

    world = World(conversations=Store())
    exchange = world.exchange(Tape())
    with pytest.raises(EffectFailed, match="adapter_failed"):
        await world.run(exchange).effects().conversations.put("reply", TURN)
    await exchange.close()
    assert exchange.tape.entries[0].end == "error"


async def test_what_is_contained_ends_like_any_other_task() -> None:
    """Results, exceptions, cancellation before the first step, and names are as ever."""
    told: list[BaseException] = []

    async def gives() -> str:
        await asyncio.sleep(0)
        return "result"

    async def fails() -> None:
        raise ValueError("mine")

    async def making() -> None:
        with contained(told.append):
            task = asyncio.create_task(gives(), name="named")
            assert task.get_name() == "named"
            assert await task == "result"
            with pytest.raises(ValueError, match="mine"):
                await asyncio.create_task(fails())
            early = asyncio.create_task(gives())
            early.cancel()
            await asyncio.wait({early})
            assert early.cancelled()
            assert told == []
            with pytest.raises(ExitContained, match="SystemExit"):
                await asyncio.create_task(exits())

    await asyncio.create_task(making())
    assert [type(error) for error in told] == [SystemExit]


async def test_a_factory_that_was_there_stays() -> None:
    """Whatever made tasks before makes them still, and only once."""
    loop = asyncio.get_running_loop()
    made: list[object] = []

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> Any:
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **more)

    async def containing() -> None:
        with contained(lambda _: None), contained(lambda _: None):
            await asyncio.create_task(asyncio.sleep(0))

    before = loop.get_task_factory()
    loop.set_task_factory(factory)
    try:
        await asyncio.create_task(containing())
        assert len(made) == 2
    finally:
        loop.set_task_factory(before)
