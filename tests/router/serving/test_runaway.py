"""Stacks that produce frames without end are stopped, and hold up no other request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from itertools import count
from typing import Any, Literal, cast

import pytest

from contract.flow import Event, Flow
from contract.flows.chat import Accept, Send, StartReply
from contract.ports import Effects
from effects.tape import CALL_OVERHEAD, MAX_CALL_BYTES
from router.serving.frames import (
    REPEATED_UNPROMPTED,
    TURN_FRAMES,
    UNPROMPTED_LIMIT,
    Frame,
    FrameFlood,
    RanAway,
)
from router.stack import StackName
from tests.support.clocks import counted_turns
from tests.support.router_world import House, Rules
from tests.support.tool_replies import ASSIGNED, CASE, FLOWS, both, other, undisturbed

pytestmark = pytest.mark.virtual

Mode = Literal["replay", "tail"]
PIECE = "x" * 20_000


async def endless(_request: object, _effects: object) -> AsyncIterator[Event]:
    """Yield for ever what is new each time, and await nothing."""
    yield Accept()
    yield StartReply()
    for number in count():
        yield Send(PIECE + "y" * number)


def looping(flow: Flow, events: int, seconds: float) -> Flow:
    """Let a flow say its latest event for ever, so many seconds apart, asking for the time."""

    async def looped(request: Any, effects: Effects) -> AsyncIterator[Event]:
        async with aclosing(cast("AsyncGenerator[Event]", flow(request, effects))) as inner:
            latest = [await anext(inner) for _ in range(events)]
            for event in latest:
                yield event
            while True:
                await asyncio.sleep(seconds)
                await effects.clock.now("again")
                yield latest[-1]

    return looped


async def asking(_request: object, effects: Effects) -> AsyncIterator[Event]:
    """Ask what is answered on the spot, for ever, and yield nothing."""
    yield Accept()
    yield StartReply()
    while True:
        await effects.clock.now("again")


async def keying(_request: object, effects: Effects) -> AsyncIterator[Event]:
    """Ask for locks of a megabyte each."""
    yield Accept()
    yield StartReply()
    for number in count():
        await effects.locks.acquire("again", f"{number}".rjust(1 << 20), 60.0)


def repeating(flow: Flow, times: int) -> Flow:
    """Let a flow say each SEND so many times."""

    async def repeated(request: Any, effects: Any) -> AsyncIterator[Event]:
        async with aclosing(cast("AsyncGenerator[Event]", flow(request, effects))) as events:
            async for event in events:
                for _ in range(times if isinstance(event, Send) else 1):
                    yield event

    return repeated


def size(frames: tuple[tuple[int, str], ...]) -> int:
    """Return how many bytes of frames a record holds."""
    return sum(len(text) for _, text in frames)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flow", "assigned"),
    [
        (endless, "legacy"),
        (endless, "graph"),
        pytest.param(asking, "legacy", marks=pytest.mark.untraced),
        (keying, "legacy"),
    ],
)
async def test_a_stack_that_goes_on_for_ever_has_failed(flow: Flow, assigned: StackName) -> None:
    """Its client gets an honest end, the record says why, and others have their turn meanwhile.

    Frames are bounded by size, calls by number and by size.
    """
    async with both(assigned, flow, FLOWS[other(assigned)], stand_in=False) as made:
        async with counted_turns() as turns:
            served = await made.ask()
        assert served.wire[-1] == (await undisturbed(assigned))[-1]
        (run,) = made.runs
        assert (run.outcome, run.error and run.error.code) == ("failed", "runaway")
    if flow is endless:
        assert UNPROMPTED_LIMIT < size(run.frames) < UNPROMPTED_LIMIT + 3 * len(PIECE)
        assert turns.count >= UNPROMPTED_LIMIT // len(PIECE) // TURN_FRAMES
    else:
        assert 100 < len(run.plays) <= MAX_CALL_BYTES // CALL_OVERHEAD
        assert turns.count > len(run.plays) // TURN_FRAMES


@pytest.mark.parametrize("assigned", ASSIGNED)
@pytest.mark.parametrize(("events", "seconds"), [(3, 0.0), (5, 0.0), (5, 0.01), (9, 0.1)])
async def test_a_stack_that_repeats_itself_is_taken_over(
    assigned: StackName, events: int, seconds: float
) -> None:
    """The client gets a few hundred frames again, then the rest of its stream."""
    whole = await undisturbed(assigned)
    loops = looping(FLOWS[assigned], events, seconds)
    async with both(assigned, loops, FLOWS[other(assigned)]) as made:
        served = await made.ask()
        first, second = made.runs
    assert (first.outcome, first.error and first.error.code) == ("failed", "runaway")
    assert (second.outcome, second.sent) == ("completed", len(first.frames))
    again = len(served.wire) - len(whole)
    assert 0 < again <= REPEATED_UNPROMPTED + 1
    assert served.wire == [*whole[:events], *whole[events - 1 : events] * again, *whole[events:]]


def frames(*texts: str) -> list[Frame]:
    """Make frames of texts."""
    return [Frame(0, text.encode(), Accept()) for text in texts]


def test_words_that_a_model_says_again_and_again_are_no_loop() -> None:
    """Each was prompted; of a stack that plays no tape as many a second as no model writes."""
    taped, remote = FrameFlood(in_stretch=True), FrameFlood(in_stretch=False)
    for number in range(20_000):
        taped.add(frames("ha"), number, number, prompted=True)
    for number in range(50_000):
        remote.add(frames("ha"), number, number * 1_002, prompted=False)
    with pytest.raises(RanAway, match="repeat"):
        remote.add(frames("ha") * 1_010, 50_000, 50_100_000, prompted=False)


def test_letters_that_repeat_are_no_loop() -> None:
    """Plain text may come letter by letter; how fast it comes still counts."""
    flood = FrameFlood(in_stretch=False, whole=False)
    flood.add(frames(*"ab" * 5_000), 0, 0, prompted=False)
    with pytest.raises(RanAway, match="came within"):
        flood.add(frames(*"ab" * 5_000), 10_000, 0, prompted=False)


def test_frames_come_no_faster_than_any_model_writes() -> None:
    """A long answer may come at once; what goes on so is a loop, though no frame is like another.

    A remote stack may come in pieces of many frames.
    """
    for flood in (FrameFlood(in_stretch=True), FrameFlood(in_stretch=False)):
        flood.add(frames(*map(str, range(16_000))), 0, 0, prompted=True)
        for second in range(1, 100):
            added = frames(*map(str, range(2_000)))
            flood.add(added, 14_000 + 2_000 * second, second * 1_000_000, prompted=False)
        with pytest.raises(RanAway, match="came within 100000 ms"):
            flood.add(frames(*map(str, range(500))), 217_000, 100_000_000, prompted=False)


@pytest.mark.parametrize("assigned", ASSIGNED)
@pytest.mark.parametrize("mode", ["replay", "tail"])
async def test_a_candidate_that_yields_for_ever_is_compared(
    assigned: StackName, mode: Mode
) -> None:
    """Running away is a finding about it; what it filled is bounded."""
    whole = await undisturbed(assigned)
    async with both(assigned, FLOWS[assigned], endless, shadow=100, mode=mode) as made:
        served = await made.ask()
        assert served.wire == whole
        assert made.states == {"compared(different)": 1}
        shadow = made.runs[1]
        assert (shadow.outcome, shadow.error and shadow.error.code) == ("failed", "runaway")
        assert size(shadow.frames) <= UNPROMPTED_LIMIT


@pytest.mark.parametrize(("times", "outcome"), [(3, "completed"), (99, "failed")])
async def test_a_candidate_may_produce_several_times_what_was_served(
    times: int, outcome: str
) -> None:
    """Also one that keeps reading, and so was prompted to each frame."""
    rules = Rules(assigned="legacy", shadow=100, exchange_bytes=10_000)
    graph = repeating(FLOWS["graph"], times)
    async with House(CASE, rules, graph=graph) as made:
        await made.ask()
        assert made.states == {"compared(different)": 1}
        serving, shadow = made.runs
        assert shadow.outcome == outcome
        assert size(shadow.frames) <= max(4 * size(serving.frames), 10_000)
