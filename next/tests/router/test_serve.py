"""Serving, where it is left or broken in unusual places."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from cutover import Event, Exchange, Request, Stack
from cutover.errors import Completed, Pause
from cutover.flow import Frame
from router.exchange import Served, finish
from router.serve import serve
from rules.flows import FLOWS
from tests.support.stage import Stage, staged

pytestmark = pytest.mark.virtual

SUM = {"message_id": "m", "content": "What is 12 * 7?"}


class _Panic(BaseException):
    """What extensions written in other languages raise."""


def panicking(stack: Stack) -> Stack:
    """Return a stack that panics at its third event."""

    async def panic(request: Request[Any, Any]) -> AsyncIterator[Event]:
        count = 0
        async with aclosing(stack(request)) as events:  # type: ignore[type-var]
            async for event in events:
                count += 1
                if count == 3:
                    raise _Panic
                yield event

    return panic


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A stage of its own."""
    async with staged() as opened:
        yield opened


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_any_exception_of_a_stack_ends_its_run_alone(stage: Stage) -> None:
    """Another stack goes on, whatever was raised."""
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    broken = stage.candidate("chat", "legacy", panicking)
    told = await stage.tell("chat", stage.request("chat", SUM), [broken, "graph"])
    assert told.outcome == Completed()


async def test_a_pause_is_stored_although_its_client_leaves(stage: Stage) -> None:
    """The client leaves while the store is at it: the question is there to be answered."""
    begun, go_on, stored = asyncio.Event(), asyncio.Event(), []

    async def slow(served: Served, question: str, frames: Sequence[Frame]) -> None:
        begun.set()
        await go_on.wait()
        await stage.pauses.pause(served, question, frames)
        stored.append(question)

    request = stage.request("ops", {"session_id": "s", "input": "restart web"})
    served = Served("e", FLOWS["ops"], request, Exchange(), "legacy")

    async def stream() -> None:
        async with aclosing(serve(served, [stage.candidate("ops", "legacy")], slow)) as frames:
            async for _ in frames:
                pass

    client = asyncio.create_task(stream())
    await begun.wait()
    client.cancel()
    await asyncio.wait({client})
    go_on.set()
    await finish(served)
    assert isinstance(served.outcome, Pause)
    assert stored == [served.outcome.question]
