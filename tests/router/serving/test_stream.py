"""Serving: who gets which frames when stacks fail, stay silent, or say what they may not."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from contract.errors import Fault
from contract.flow import Event
from contract.flows.chat import Accept, ChatOptions, ChatRequest, End, Send, StartReply, Success
from contract.model import Chunk, Usage
from contract.records import ErrorRecord
from effects.model import Fail, Step, Wait
from router.stack import StackName
from tests.support.faulty_stacks import (
    Boom,
    Tripwire,
    after,
    crash,
    dawdle,
    deaf,
    hang,
    instead,
    mapped,
    short,
)
from tests.support.flow_runs import Case
from tests.support.router_world import STALL, House, Rules
from tests.support.tool_replies import (
    ASSIGNED,
    CASE,
    FLOWS,
    both,
    house,
    nothing_twice,
    other,
    shouted,
    undisturbed,
)

pytestmark = pytest.mark.virtual

FAILED = [b'data: {"step":"FAILED"}\n\n', b'data: {"step":"END"}\n\n']


@pytest.mark.untraced
@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_successor_that_says_something_else_ends_in_failure_frames(
    assigned: StackName,
) -> None:
    """The client has half a reply; the rest of another one must not follow it."""
    for index in range(1, 14):
        stand_in = mapped(FLOWS[other(assigned)], shouted)
        async with both(assigned, after(FLOWS[assigned], index, crash), stand_in) as made:
            served = await made.ask()
            whole = (await undisturbed(assigned))[:index]
            text = any(b"SEND" in frame for frame in whole)
            if not text:
                continue
            assert served.wire == [*whole, *FAILED]
            assert served.comments == []
            fallback = made.runs[1]
            assert fallback.role == "fallback"
            assert fallback.outcome == "failed"
            assert fallback.error is not None
            assert fallback.error.code == "prefix_mismatch"
            assert made.world.count("model.stream") <= 2


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_successor_that_ended_before_its_beginning_was_read_has_failed_too(
    assigned: StackName,
) -> None:
    """It made no call, and has completed in its own eyes when it is found out."""

    async def glib(_request: object, _effects: object) -> AsyncIterator[Event]:
        for event in (Accept(), StartReply(), Send("else"), Success("else"), End()):
            yield event

    async with both(assigned, after(FLOWS[assigned], 6, crash), glib) as made:
        served = await made.ask()
    assert served.wire[-2:] == FAILED
    assert len(served.wire) == 8
    assert made.runs[1].outcome == "failed"
    assert made.runs[1].error == ErrorRecord("prefix_mismatch")


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_slow_client_slows_nobody_down(assigned: StackName) -> None:
    """The stack runs on, is not taken for stalled, and the client gets every frame in the end."""
    async with house(assigned, FLOWS[assigned]) as made:
        served = await made.ask(pause=100.0)
    assert served.wire == await undisturbed(assigned)
    (run,) = made.runs
    assert run.frames[-1][0] < 5_000_000


@pytest.mark.parametrize("assigned", ASSIGNED)
@pytest.mark.parametrize("act", [crash, hang], ids=["crash", "hang"])
async def test_a_second_failure_ends_in_failure_frames(assigned: StackName, act: Any) -> None:
    """After the commit point; there is no third stack."""
    whole = await undisturbed(assigned)
    for index, again in ((1, 0), (5, 3), (5, 5), (5, 8), (12, 12)):
        first = after(FLOWS[assigned], index, crash)
        async with both(assigned, first, after(FLOWS[other(assigned)], again, act)) as made:
            served = await made.ask()
            seen = max(index, again)
            # After the prologue alone, START_REPLY is still due before FAILED.
            due = [whole[1]] if seen == 1 else []
            assert served.wire == [*whole[:seen], *due, *FAILED]
            assert len(served.comments) == (1 if again > index else 0)
            assert made.runs[0].outcome == "failed"
            assert [text.encode() for _, text in made.runs[1].frames[-2:]] == FAILED


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_when_nobody_can_serve_there_is_no_frame(assigned: StackName) -> None:
    """A status instead, and nothing of the exception."""
    stand_in = after(FLOWS[other(assigned)], 0, crash)
    async with both(assigned, after(FLOWS[assigned], 0, crash), stand_in) as made:
        served = await made.ask()
    assert (served.status, served.code, served.frames) == (500, "internal", [])
    assert [run.outcome for run in made.runs] == ["failed", "failed"]
    assert b"secret" not in b"".join(msgspec.json.encode(run) for run in made.runs)


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_without_a_stand_in_the_stream_ends_honestly(assigned: StackName) -> None:
    """Before the first frame a status, after it failure frames; the lock is free again."""
    whole = await undisturbed(assigned)
    async with house(assigned, after(FLOWS[assigned], 0, hang), stand_in=False) as made:
        served = await made.ask()
        assert (served.status, served.code) == (500, "internal")
    async with house(assigned, after(FLOWS[assigned], 4, crash), stand_in=False) as made:
        served = await made.ask()
        assert served.wire == [*whole[:4], *FAILED]
        (run,) = made.runs
        assert (run.outcome, run.served) == ("failed", assigned)
        assert await made.world.locks.acquire("again", "msg_lock:m", 1.0)


BAD: dict[str, object] = {
    "a second prologue": Accept(),
    "an early end": End(),
    "text that shrinks": Send(""),
    "no event at all": "SEND",
}


@pytest.mark.parametrize("assigned", ASSIGNED)
@pytest.mark.parametrize("bad", BAD)
async def test_what_the_grammar_forbids_never_reaches_the_client(
    assigned: StackName, bad: str
) -> None:
    """The other stack takes over, at any place."""
    whole = await undisturbed(assigned)
    for index in range(3, len(whole) - 1):
        async with house(assigned, instead(FLOWS[assigned], index, BAD[bad])) as made:
            served = await made.ask()
            assert served.wire == whole
            assert len(served.comments) == 1
            nothing_twice(made)
            assert made.runs[0].reason == ("crash" if bad == "no event at all" else "grammar")


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_wrong_beginning_is_replaced_before_the_commit_point(assigned: StackName) -> None:
    """One prologue, from the other stack, and no comment."""
    whole = await undisturbed(assigned)
    async with house(assigned, instead(FLOWS[assigned], 0, StartReply())) as made:
        served = await made.ask()
    assert (served.wire, served.comments) == (whole, [])
    assert made.states == {"not_sampled": 1}
    assert (made.router.counts.fallbacks, made.router.counts.takeovers) == (1, 0)


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_stack_that_just_stops_is_replaced(assigned: StackName) -> None:
    """No silent truncation: without its terminal frame a stream is not over."""
    whole = await undisturbed(assigned)
    for index in range(len(whole)):
        async with house(assigned, short(FLOWS[assigned], index)) as made:
            served = await made.ask()
            assert served.wire == whole
            nothing_twice(made)
            assert (made.runs[0].outcome, made.runs[0].reason) == ("truncated", "truncated")


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_what_happens_after_the_last_frame_concerns_nobody(assigned: StackName) -> None:
    """The client has everything: no takeover; a crash is on record, a straggler is sent home."""
    whole = await undisturbed(assigned)
    for act, outcome, code in ((crash, "failed", "crash"), (hang, "completed", "lingered")):
        async with house(assigned, after(FLOWS[assigned], len(whole), act)) as made:
            served = await made.ask()
            assert (served.wire, served.comments) == (whole, [])
            (run,) = made.runs
            assert run.outcome == outcome
            assert run.error is not None
            assert run.error.code == code
            assert await made.world.locks.acquire("again", "msg_lock:m", 1.0)


def silent(*places: int) -> Case:
    """Build a case whose model is silent for minutes at the places named."""
    text: list[Step] = [
        Chunk(reasoning="h"),
        Chunk(text="a"),
        Chunk(text="b"),
        Chunk(finish="stop"),
    ]
    text.append(Chunk(usage=Usage(1, 1, 2)))
    for place in sorted(places, reverse=True):
        text.insert(place, Wait(300.0))
    return Case(CASE.body, ChatOptions(), (tuple(text),))


@pytest.mark.parametrize("assigned", ASSIGNED)
@pytest.mark.parametrize("place", range(6))
async def test_a_silent_provider_is_no_stall(assigned: StackName, place: int) -> None:
    """Before the first token, in the middle, before the usage, after it."""
    async with House(silent(place), Rules(assigned=assigned)) as made:
        served = await made.ask()
    assert (len(made.runs), served.comments) == (1, [])
    assert served.wire[-2:] == [b'data: {"step":"SUCCESS","content":"ab"}\n\n', FAILED[1]]


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_minutes_of_reasoning_without_a_frame_are_no_stall(assigned: StackName) -> None:
    """The strict wire shows nothing of it; that each piece is read is sign of life enough."""
    thought = tuple(step for _ in range(40) for step in (Wait(7.0), Chunk(reasoning="m")))
    slow = tuple(step for _ in range(9) for step in (Wait(2.5 * STALL), Chunk(reasoning="m")))
    answer = (*thought, *slow, Chunk(text="so"), Chunk(finish="stop"))
    async with House(Case(CASE.body, answers=(answer,)), Rules(assigned=assigned)) as made:
        served = await made.ask()
    assert len(made.runs) == 1
    assert served.frames[2][0] > 500


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_slow_tools_and_stores_are_no_stall(assigned: StackName) -> None:
    """A tool has its own limits, and so have stores."""
    case = replace(CASE, slow={"dice": 29.0, "calc": 29.5})
    async with House(case, Rules(assigned=assigned)) as made:
        served = await made.ask()
    assert len(made.runs) == 1
    assert b"SUCCESS" in served.wire[-2]


@pytest.mark.parametrize("assigned", ASSIGNED)
@pytest.mark.parametrize("place", range(4))
async def test_a_providers_fault_is_never_a_takeover(assigned: StackName, place: int) -> None:
    """The flow's failure frames, or a status before the first frame; one run."""
    steps: list[Step] = [Chunk(text="a"), Wait(1.0), Chunk(text="b")]
    steps.insert(place, Fail(Fault("model_rate_limited", retryable=True)))
    case = Case(CASE.body, answers=(tuple(steps),))
    async with House(case, Rules(assigned=assigned, shadow=100)) as made:
        served = await made.ask()
    assert served.wire[-2:] == FAILED
    run, shadow = made.runs
    assert (run.outcome, run.reason) == ("failed", "percent")
    assert run.error is not None
    assert run.error.code == "model_rate_limited"
    assert shadow.role == "shadow"
    assert made.states == {"compared(equal)": 1}


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_store_out_of_order_is_never_a_fallback(assigned: StackName) -> None:
    """503 with the fault's code."""
    case = Case(CASE.body, store_fails={"message": Fault("store_unavailable")})
    async with House(case, Rules(assigned=assigned)) as made:
        served = await made.ask()
    assert (served.status, served.code) == (503, "store_unavailable")
    assert len(made.runs) == 1


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_refusal_is_never_a_fallback(assigned: StackName) -> None:
    """It is an outcome."""
    async with House(Case(ChatRequest(message_id="m")), Rules(assigned=assigned)) as made:
        served = await made.ask()
    assert (served.status, served.code) == (404, "unknown_message")
    (run,) = made.runs
    assert (run.outcome, run.frames) == ("refused", ())


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_leaving_after_the_last_frame_is_no_cancel(assigned: StackName) -> None:
    """The reply is stored, the shadow runs."""
    whole = await undisturbed(assigned)
    async with house(assigned, FLOWS[assigned], shadow=100) as made:
        served = await made.ask(leaves_after=len(whole))
        assert not served.stream.disconnected
        assert made.states == {"compared(equal)": 1}
        assert made.router.counts.disconnected == 0
        nothing_twice(made)


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_leaving_before_the_first_frame_is_no_failure(assigned: StackName) -> None:
    """No stack is blamed, no fallback starts."""
    slow = Tripwire(0, dawdle(5.0), done=False).flow(FLOWS[assigned])
    async with house(assigned, slow, shadow=100) as made:
        await made.ask(leaves_after=0, lingers=0.125)
        assert made.states == {"cancelled(client_left)": 1}
        assert [run.outcome for run in made.runs] == ["cancelled"]


async def test_a_tape_that_outgrew_its_bounds_serves_without_takeover() -> None:
    """What has been dropped cannot be played again: the stream ends in failure frames."""
    whole = await undisturbed("legacy")
    async with both(
        "legacy", FLOWS["legacy"], FLOWS["graph"], exchange_bytes=700, shadow=100
    ) as made:
        served = await made.ask()
        assert served.wire == whole
        assert made.states == {"dropped(size)": 1}
        assert made.runs[0].tape is None
    faulty = after(FLOWS["legacy"], 9, crash)
    async with both("legacy", faulty, FLOWS["graph"], exchange_bytes=700, shadow=100) as made:
        served = await made.ask()
        assert served.wire == [*whole[:9], *FAILED]
        assert made.states == {"dropped(size)": 1}


async def test_frames_that_outgrow_the_bounds_too_are_let_go_of_once_sent() -> None:
    """Cumulative frames weigh far more than their tape; the client gets every one of them."""
    whole = await undisturbed("graph")
    async with both("graph", FLOWS["graph"], FLOWS["legacy"], exchange_bytes=700) as made:
        served = await made.ask()
    assert served.wire == whole
    serving = served.stream
    assert serving.run.complete
    assert serving.run.dropped == len(whole) - 1
    assert sum(len(frame.data) for frame in serving.run.frames) == len(whole[-1])
    assert [run.frames for run in made.runs] == [()]
    assert [run.outcome for run in made.runs] == ["completed"]


async def test_frames_that_outgrow_the_bounds_are_let_go_of_when_nobody_took_them() -> None:
    """A client that does not read and leaves must not have all it missed written down."""
    async with both("graph", FLOWS["graph"], FLOWS["legacy"], exchange_bytes=700) as made:
        served = await made.ask(leaves_after=1, lingers=500.0, pause=1_000.0)
    drive = served.stream.run
    assert served.stream.disconnected
    assert drive.dropped == len(drive.frames) - 1
    assert [run.frames for run in made.runs] == [()]


async def test_an_exceptions_text_is_for_developers_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not in frames, not in records, and in the log only at its lowest level."""
    with caplog.at_level(logging.DEBUG):
        async with house("graph", after(FLOWS["graph"], 4, crash), stand_in=False) as made:
            served = await made.ask()
    levels = [one.levelno for one in caplog.records if one.exc_info and one.exc_info[0] is Boom]
    assert levels == [logging.DEBUG]
    assert b"secret" not in b"".join(served.wire) + msgspec.json.encode(made.runs)


async def test_a_stack_that_ignores_its_cancellation_is_left_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client waits for the stall limit and no longer; the log says who stays."""
    async with house("legacy", after(FLOWS["legacy"], 4, deaf(40.0))) as made:
        served = await made.ask()
        assert served.frames[-1][0] < 3 * STALL
        await dawdle(60.0)(made.world.effects)
    assert any("is left behind" in record.getMessage() for record in caplog.records)
