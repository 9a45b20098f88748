"""Work after the end of an answer: the client has all it gets, and the session is free."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from contract.errors import Paused
from contract.flow import Event, Flow, Request
from contract.ports import Effects
from contract.stores import MemoryEntry
from effects.testing import World
from router.serving.stream import STOP_SECONDS
from router.stack import StackName
from tests.support.faulty_stacks import Boom
from tests.support.pausing_flow import SPEC, Ask, Desk, Done, Options, Said

pytestmark = pytest.mark.virtual

WORKS = 20.0
"""Longer than a stack may owe a sign of life."""
LATER = replace(SPEC, grace_seconds=60.0)


async def learning(request: Request[Ask, Options], effects: Effects) -> AsyncIterator[Event]:
    """Answer, let go of the session, and learn something in a while."""
    session = request.body.session_id
    await effects.locks.acquire("turn", f"session:{session}", 60.0)
    yield Said("hello")
    await effects.locks.release("turn", f"session:{session}")
    yield Done("completed")
    await asyncio.sleep(WORKS)
    entry = MemoryEntry(memory_id="m", user_id="u", text="likes tea", session_id=session)
    await effects.memory.write("learn", (entry,))


async def test_work_after_the_end_is_done_and_recorded() -> None:
    """It is on the tape, and a shadow that plays it finds it there."""
    desk = Desk(World(), legacy=learning, graph=learning, spec=LATER)
    reply = await desk.ask()
    assert reply.said == ["hello", "completed"]
    assert [entry.text for entry in desk.world.memory.entries] == ["likes tea"]
    tape = desk.captured.batches[0][0].tape
    assert tape is not None
    assert [entry.op for entry in tape] == ["acquire", "release", "write"]


def crashing(writes: int) -> Flow:
    """Learn in two writes, and crash after so many of them."""

    async def flow(request: Request[Ask, Options], effects: Effects) -> AsyncIterator[Event]:
        session = request.body.session_id
        yield Said("hello")
        yield Done("completed")
        for number in range(2):
            if number == writes:
                raise Boom
            entry = MemoryEntry(
                memory_id=f"m{number}", user_id="u", text=f"fact {number}", session_id=session
            )
            await effects.memory.write(f"learn {number}", (entry,))

    return flow


@pytest.mark.parametrize("writes", [0, 1])
@pytest.mark.parametrize("assigned", ["legacy", "graph"])
async def test_work_after_the_end_that_crashed_is_finished_by_the_other_stack(
    assigned: StackName, writes: int
) -> None:
    """Once: what had been done is on the tape. The client has its answer, and gets nothing more."""
    flows = {"legacy": crashing(9), "graph": crashing(9)} | {assigned: crashing(writes)}
    desk = Desk(World(), legacy=flows["legacy"], graph=flows["graph"], spec=LATER)
    desk.assigned = assigned
    reply = await desk.ask()
    assert reply.said == ["hello", "completed"]
    assert [entry.text for entry in desk.world.memory.entries] == ["fact 0", "fact 1"]
    assert desk.world.count("memory.write") == 2
    first, second = desk.captured.batches[0]
    assert (first.role, first.stack, first.outcome) == ("serving", assigned, "failed")
    assert (second.role, second.outcome, second.sent) == ("fallback", "completed", 2)
    assert {first.served, second.served} == {assigned}
    assert first.tape is not None
    assert [entry.op for entry in first.tape] == ["write", "write"]


async def test_the_session_is_free_when_the_last_frame_goes_out() -> None:
    """A next request sent at once does not find the turn under way."""
    desk = Desk(World(), legacy=learning, graph=learning, spec=LATER)
    stream = await desk.router.open(LATER, Ask("s", "hello"), None)
    began = desk.now()
    await stream.open()
    async for _ in stream.pieces():
        pass
    await stream.close_in_grace()
    assert desk.now() == began
    assert await desk.world.locks.for_exchange().acquire("test", "session:s", 1.0)
    desk.router.close(stream)
    await desk.settled(stream)
    assert desk.now() == began + WORKS


async def test_the_session_is_free_when_a_stream_pauses() -> None:
    """A flow that waits for a human does nothing after its end, whatever it declares."""

    async def asking(request: Request[Ask, Options], effects: Effects) -> AsyncIterator[Event]:
        await effects.locks.acquire("message", f"session:{request.body.session_id}", 60.0)
        yield Said("hello")
        raise Paused("h-1")

    desk = Desk(World(), legacy=asking, graph=asking, spec=LATER)
    stream = await desk.router.open(LATER, Ask("s", "hello"), None)
    await stream.open()
    async for _ in stream.pieces():
        pass
    await stream.close_in_grace()
    assert stream.close_now()
    assert await desk.world.locks.for_exchange().acquire("test", "session:s", 1.0)
    desk.router.close(stream)
    await desk.settled(stream)


async def test_a_flow_that_declares_none_is_not_waited_for() -> None:
    """It lingers for as long as it may owe a sign of life, and is dismissed."""
    desk = Desk(World(), legacy=learning, graph=learning)
    began = desk.now()
    await desk.ask()
    assert desk.world.memory.entries == ()
    assert began + WORKS > desk.now() - STOP_SECONDS
