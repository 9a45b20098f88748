"""Driving: whatever a flow does, its run reports an ending, and never raises."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest

from contract.errors import EffectFailed, Fault, Fenced, Paused, Refused, TapeCut, TapeMiss
from contract.flow import Event, Request
from contract.flows.chat import (
    CHAT,
    Accept,
    ChatOptions,
    ChatRequest,
    End,
    Failed,
    Send,
    StartReply,
    Success,
)
from effects.tape import TapeSession
from effects.testing import World
from router.serving.run import Run, RunRequest
from router.serving.stack import LocalStack
from router.stack import RunOutcome
from tests.support.collector import without_collector
from tests.support.flow_runs import FOREVER

pytestmark = pytest.mark.virtual

REQUEST = Request(ChatRequest(message_id="m", content="x"), ChatOptions())
WELL: list[Event] = [Accept(), StartReply(), Send("a"), Success("a"), End()]
REPORTED: list[Event] = [Accept(), StartReply(), Failed(), End()]


def saying(*events: Event | BaseException) -> Callable[..., AsyncIterator[Event]]:
    """Make a flow that produces events and raises exceptions."""

    async def flow(_request: object, _effects: object) -> AsyncIterator[Event]:
        for event in events:
            await asyncio.sleep(0)
            if isinstance(event, BaseException):
                raise event
            yield event

    return flow


def started(flow: Any, *, strict: bool = True) -> Run:
    """Start a flow."""
    exchange = World().exchange()
    stack = LocalStack("legacy", {"chat": flow}, "l")
    session = TapeSession(exchange, "run")
    run = stack.new_run(RunRequest(CHAT, "legacy", REQUEST, "serving"), session, strict=strict)
    run.start()
    return run


async def ended(flow: Any, *, strict: bool = True) -> tuple[Run, RunOutcome]:
    """Run a flow to its end."""
    run = started(flow, strict=strict)
    assert await run.wait_stopped(FOREVER)
    assert run.outcome is not None
    return run, run.outcome


FAULT = EffectFailed(Fault("model_unavailable"))
ENDINGS: dict[str, tuple[list[Event | BaseException], str, str, str | None]] = {
    "well": ([*WELL], "completed", "none", None),
    "it reports a failure": ([*REPORTED], "failed", "world", "reported"),
    "it reports a code": ([*REPORTED[:2], Failed("busy"), End()], "failed", "world", "busy"),
    "it refuses": ([Refused(409, "no")], "refused", "none", "no"),
    "it refuses too late": ([Accept(), Refused(409, "no")], "failed", "stack", "crash"),
    "it pauses": ([Accept(), Paused("q")], "paused", "none", None),
    "its tape is cut": ([Accept(), TapeCut("x")], "cancelled", "none", None),
    "it is fenced": ([Accept(), Fenced("x")], "cancelled", "none", None),
    "a fault it lets through": ([Accept(), FAULT], "failed", "world", "model_unavailable"),
    "a miss": ([Accept(), TapeMiss("x", None)], "failed", "stack", "tape_miss"),
    "a crash": ([Accept(), ValueError("x")], "failed", "stack", "crash"),
    "it would end the process": ([Accept(), SystemExit(2)], "failed", "stack", "crash"),
    "a crash at the start": ([ValueError("x")], "failed", "stack", "crash"),
    "a crash after the end": ([*WELL, ValueError("x")], "failed", "stack", "crash"),
    "it loses itself": ([Accept(), asyncio.CancelledError()], "failed", "stack", "crash"),
    "nothing at all": ([], "truncated", "stack", "truncated"),
    "it just stops": ([Accept(), StartReply()], "truncated", "stack", "truncated"),
    "a wrong start": ([StartReply()], "failed", "stack", "grammar"),
    "two ends": ([*WELL, End()], "failed", "stack", "grammar"),
}


@pytest.mark.parametrize("how", ENDINGS)
async def test_every_way_to_end_has_an_outcome_and_somebody_to_blame(how: str) -> None:
    """Only what is the stack's own fault is worth another stack's try."""
    events, outcome, blame, code = ENDINGS[how]
    _, ending = await ended(saying(*events))
    assert (ending.kind, ending.blame) == (outcome, blame)
    assert (ending.error.code if ending.error else None) == code
    assert (ending.refusal is not None) == (outcome == "refused")


async def test_a_crash_names_its_line() -> None:
    """The innermost of the stack's own, where a library was asked for what it refuses."""

    async def flow(_request: object, _effects: object) -> AsyncIterator[Event]:
        yield Accept()
        msgspec.json.decode(b"{")

    _, ending = await ended(flow)
    assert ending.error is not None
    file, _, line = ending.error.where.partition(":")
    assert file == "tests/router/serving/test_run.py"
    assert int(line) == flow.__code__.co_firstlineno + 2


async def test_a_forbidden_event_is_not_among_the_frames() -> None:
    """What came before it is."""
    run, _ = await ended(saying(Accept(), StartReply(), Send("ab"), Send("a"), End()))
    assert [frame.event for frame in run.frames] == [Accept(), StartReply(), Send("ab")]


async def test_a_candidate_is_seen_whole() -> None:
    """Not strict: what is wrong is for the comparison to say."""
    events: list[Event] = [End(), Accept(), Send("ab"), Send("a"), End()]
    run, ending = await ended(saying(*events), strict=False)
    assert [frame.event for frame in run.frames] == events
    assert ending.kind == "completed"


async def test_a_dismissed_flow_adds_nothing_more() -> None:
    """The first word on its ending counts, even if it ends otherwise."""
    go_on = asyncio.Event()

    async def flow(_request: object, _effects: object) -> AsyncIterator[Event]:
        yield Accept()
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            yield StartReply()

    run = started(flow)
    await asyncio.sleep(1.0)
    run.fence(RunOutcome("timeout", "stack"))
    assert await run.wait_stopped(FOREVER)
    assert run.outcome == RunOutcome("timeout", "stack")
    assert len(run.frames) == 1


async def test_a_flow_is_closed_by_its_own_task() -> None:
    """Its clean-up runs where it ran, and is waited for."""
    seen: list[object] = []

    async def flow(_request: object, _effects: object) -> AsyncIterator[Event]:
        task = asyncio.current_task()
        try:
            yield StartReply()
        finally:
            await asyncio.sleep(3.0)
            seen.append(task is asyncio.current_task())

    await ended(flow)
    assert seen == [True]


async def test_a_flow_has_a_context_of_its_own() -> None:
    """What the server had set around the request is not the stack's."""
    variable: ContextVar[str] = ContextVar("variable", default="nothing")
    variable.set("the server's")
    seen: list[str] = []

    async def flow(_request: object, _effects: object) -> AsyncIterator[Event]:
        seen.append(variable.get())
        for event in WELL:
            yield event

    await ended(flow)
    assert seen == ["nothing"]


async def test_frames_are_stamped_when_they_are_made() -> None:
    """In microseconds since the exchange began."""

    async def flow(_request: object, _effects: object) -> AsyncIterator[Event]:
        for event in WELL:
            await asyncio.sleep(0.25)
            yield event

    run, _ = await ended(flow)
    assert [frame.at for frame in run.frames] == [250_000 * n for n in range(1, 6)]
    assert [frame.data for frame in run.frames] == [CHAT.encode(event) for event in WELL]


async def hanging(_request: object, _effects: object) -> AsyncIterator[Event]:
    """Never get further."""
    yield Accept()
    await asyncio.Event().wait()


async def test_a_run_that_was_cancelled_is_freed_at_once() -> None:
    """A run that was cancelled is freed with its last reference, and with it what it has read."""
    with without_collector():
        run = started(hanging)
        gone = weakref.ref(run)
        await run.changed.wait()
        run.fence(RunOutcome("cancelled"))
        assert await run.wait_stopped(FOREVER)
        await asyncio.sleep(0)
        del run
        await asyncio.sleep(0)
        assert gone() is None
