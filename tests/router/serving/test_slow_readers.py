"""Clients that read slowly, or not at all: what waits for them is bounded, and so is the wait."""

from __future__ import annotations

import asyncio
import logging

import pytest

from contract.flows.chat import CHAT, ChatOptions, Send
from effects.model import Step
from router.serving.stream import ServedStream
from router.stack import StackName
from tests.support.asgi_client import AsgiClient
from tests.support.faulty_stacks import after, crash
from tests.support.flow_runs import Case
from tests.support.router_world import House, Rules
from tests.support.tool_replies import ASSIGNED, CASE, FLOWS, both, other, pieces, undisturbed

pytestmark = pytest.mark.virtual

ROOM = 4_000
LIMITS = {"unsent_bytes": ROOM, "send_seconds": 60.0}
WORDS = 200


def long(words: int = WORDS) -> Case:
    """Make an answer of many cumulative frames."""
    answer: tuple[Step, ...] = pieces(*["a few words "] * words)
    return Case(CASE.body, ChatOptions(yield_interval=0.0), (answer,))


def ahead(serving: ServedStream) -> int:
    """Return how many bytes of frames wait for the client."""
    return serving.run.backpressure.unsent


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_the_frames_of_who_does_not_read_wait_and_the_tape_goes_on(
    assigned: StackName,
) -> None:
    """The model is heard to its end; of the frames, no more are made than may wait."""
    async with House(long(), Rules(assigned=assigned, limits=LIMITS)) as made:
        stream = await made.router.open(CHAT, made.case.body, None)
        await stream.open()
        await asyncio.sleep(0.25 * WORDS + 1.0)
        frames = stream.run.frames
        assert not stream.run.complete
        assert ROOM < ahead(stream) <= ROOM + len(frames[-1].data)
        (model,) = [entry for entry in stream.exchange.tape.entries if entry.items[2:]]
        assert (model.end, len(model.items)) == ("complete", WORDS)
        stream.disconnect()
        made.router.close(stream)


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_slow_reader_gets_every_frame_and_blames_nobody(assigned: StackName) -> None:
    """The same bytes, however long it takes: no stall, no takeover."""
    async with House(long(), Rules(assigned=assigned)) as made:
        whole = (await made.ask()).wire
    async with House(long(), Rules(assigned=assigned, limits=LIMITS)) as made:
        served = await made.ask(pause=30.0)
        assert served.frames[-1][0] > 10 * 60.0
        assert (served.wire, served.comments) == (whole, [])
        assert [(run.role, run.outcome) for run in made.runs] == [("serving", "completed")]
        assert made.router.counts.takeovers == 0


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_slow_readers_stack_is_taken_over_like_any_other(assigned: StackName) -> None:
    """A stack that breaks while its frames wait is replaced; the client gets one whole stream."""
    whole = await undisturbed(assigned)
    for events in range(4, len(whole)):
        broken = after(FLOWS[assigned], events, crash)
        async with both(
            assigned, broken, FLOWS[other(assigned)], limits=LIMITS | {"unsent_bytes": 1}
        ) as made:
            served = await made.ask(pause=30.0)
            assert served.wire == whole
            assert made.router.counts.takeovers == 1


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_shadow_that_tails_does_not_wait_for_the_client(assigned: StackName) -> None:
    """It reads the tape, and is done with it before the client has read ten frames."""
    rules = Rules(assigned=assigned, limits=LIMITS, shadow=100, mode="tail")
    async with House(long(), rules) as made:
        stream = await made.router.open(CHAT, made.case.body, None)
        await stream.open()
        await asyncio.sleep(0.25 * WORDS + 5.0)
        shadow = made.router.shadows.run_of(stream.context.exchange)
        assert shadow is not None
        assert isinstance(shadow.frames[-1].event, Send)
        assert len(shadow.frames) > 2 * len(stream.run.frames)
        stream.disconnect()
        made.router.close(stream)
        assert await shadow.wait_stopped(10.0)


@pytest.mark.parametrize("takes", [0, 1, 2, 9])
async def test_a_client_that_takes_nothing_is_given_up(
    takes: int, caplog: pytest.LogCaptureFixture
) -> None:
    """After `send_seconds` it has left: connection dropped, model ended, logged and counted."""
    async with House(long(), Rules(limits=LIMITS, shadow=100)) as made:
        client = AsgiClient(made, takes)
        began = asyncio.get_running_loop().time()
        with caplog.at_level(logging.WARNING):
            await client.ask()
        due = began + 60.0 + 0.25 * max(takes - 3, 0)
        assert asyncio.get_running_loop().time() == pytest.approx(due, abs=1.0)
        assert client.aborted == 1
        await made.router.aclose(10.0)
        (run,) = made.runs
        assert (run.outcome, run.error and run.error.code) == ("cancelled", "client_unread")
        assert made.states == {"cancelled(client_left)": 1}
        counts = made.router.counts
        assert (counts.disconnected, counts.slow_clients) == (1, 1)
        assert await made.world.locks.acquire("again", "msg_lock:m", 1.0)
    (said,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "read nothing for 60 s" in said.getMessage()


async def test_a_client_that_takes_something_now_and_then_is_served() -> None:
    """The limit is on each piece, not on the answer."""
    async with House(long(), Rules(limits=LIMITS)) as made:
        whole = b"".join((await made.ask()).wire)
    async with House(long(), Rules(limits=LIMITS)) as made:
        client = AsgiClient(made, pause=59.0)
        await client.ask()
        assert (b"".join(client.parts), client.aborted) == (whole, 0)
        assert made.router.counts.slow_clients == 0


async def test_silence_of_the_model_is_not_the_clients() -> None:
    """No client is dropped while there is nothing to read."""
    async with House(CASE, Rules(limits=LIMITS | {"send_seconds": 0.125})) as made:
        client = AsgiClient(made)
        await client.ask()
        assert client.aborted == 0
        assert made.router.counts.slow_clients == 0


async def test_a_server_without_abort_ends_the_task_all_the_same() -> None:
    """Whatever serves the application: nothing is left waiting for such a client."""
    async with House(long(), Rules(limits=LIMITS)) as made:
        client = AsgiClient(made, takes=3)
        client.extensions = {}
        await client.ask()
        await made.router.aclose(10.0)
        assert made.router.counts.slow_clients == 1
