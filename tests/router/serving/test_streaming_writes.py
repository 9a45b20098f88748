"""A worker in a served exchange: it runs once, to its end, and is recorded as it ran."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal

import pytest

from contract.flows import SPECS
from contract.operations import WORKERS_RUN
from contract.records import RunRecord, decode_run, encode_run
from contract.workers import WorkerCall, WorkerResult, WorkerUpdate
from cutover.replay.parts import Recording, recording_of
from cutover.replay.play import Pace, PlayOptions, play
from effects.model import Wait
from effects.tape import Tape
from effects.workers import ScriptedWorkers
from router.serving.stack import LocalStack
from tests.support.recorded_spans import Traced, said
from tests.support.router_world import House, Rules
from tests.support.tool_replies import ASSIGNED, CASE, FLOWS, named, other, undisturbed

if TYPE_CHECKING:
    from contract.flow import Event, Flow, Request
    from contract.ports import Effects
    from router.stack import StackName

pytestmark = pytest.mark.virtual

BUILD = WorkerCall("deploy", "build")
BUILT = WorkerResult(ok=True, message="built")
UPDATES = [
    WorkerUpdate("fetching", at=1_000_000),
    WorkerUpdate("compiling", at=3_000_000),
    WorkerUpdate(result=BUILT, at=4_000_000),
]
STEPS = (Wait(1.0), "fetching", Wait(2.0), "compiling", Wait(1.0), BUILT)


def building(stack: StackName, *, crashes_after: int = -1) -> Flow:
    """Return the chat of a stack that builds behind its first frame, and may crash meanwhile."""

    async def flow(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        chat: Any = FLOWS[stack](request, effects)
        async with aclosing(chat) as events:
            yield await anext(events)
            read = 0
            updates = effects.workers.run("execute", BUILD)
            while read != crashes_after and await anext(updates, None) is not None:
                read += 1
            if read == crashes_after:
                raise OSError
            async for event in events:
                yield event

    return flow


def house(rules: Rules, assigned: StackName, *, crashes_after: int = -1) -> House:
    """Build a house both of whose stacks build; the assigned one may crash."""
    flows = {
        assigned: building(assigned, crashes_after=crashes_after),
        other(assigned): building(other(assigned)),
    }
    made = House(CASE, rules, legacy=flows["legacy"], graph=flows["graph"])
    made.world.workers = ScriptedWorkers({"deploy.build": STEPS})
    return made


def recorded(run: RunRecord) -> Tape:
    """Return the tape of a run as it is read from a capture."""
    return Tape.load(decode_run(encode_run(run)).tape or ())


@pytest.mark.parametrize("mode", ["replay", "tail", "live"])
async def test_no_shadow_executes_a_worker(mode: Literal["replay", "tail", "live"]) -> None:
    """It gets the items that were recorded, with their stamps, whatever answers its model calls."""
    asks = CASE.world().model
    rules = Rules(shadow=100, mode=mode, asks=asks)
    async with house(rules, "legacy") as made:
        await made.ask()
        assert [state.partition("(")[0] for state in made.states] == ["compared"]
        serving, shadow = made.runs
        assert made.world.workers.calls == [BUILD]
    assert recorded(serving).at_site(WORKERS_RUN, "execute")[0].items == UPDATES
    assert [play.how for play in shadow.plays if play.port == "workers"] == ["exact"]


@pytest.mark.parametrize("assigned", ASSIGNED)
@pytest.mark.parametrize("read", range(4))
async def test_a_takeover_goes_on_with_the_worker(read: int, assigned: StackName) -> None:
    """The successor tails it, wherever the other stack has crashed; the client sees no seam."""
    async with house(Rules(assigned=assigned), assigned, crashes_after=read) as made:
        served = await made.ask()
        assert served.wire == await undisturbed(assigned)
        assert made.world.workers.calls == made.world.workers.ended == [BUILD]
        assert recorded(made.runs[0]).at_site(WORKERS_RUN, "execute")[0].items == UPDATES


@pytest.mark.parametrize("pace", ["full", "recorded"])
@pytest.mark.parametrize("stack", ASSIGNED)
async def test_a_replay_plays_the_worker(stack: StackName, pace: Pace) -> None:
    """From the capture, on either stack: the same frames, and no live port is reached."""
    async with house(Rules(), "legacy") as made:
        await made.ask()
        [run] = made.runs
    ready = recording_of((decode_run(encode_run(run)),), SPECS, lambda digest: digest.encode())
    assert isinstance(ready, Recording)
    local = LocalStack(stack, {"chat": building(stack)}, "")
    played = await play(ready, local, PlayOptions(pace), ready.serving)
    assert played.record.outcome == "completed"
    assert [text for _, text in played.record.frames] == [text for _, text in run.frames]
    assert [play.how for play in played.record.plays if play.port == "workers"] == ["exact"]


@pytest.mark.parametrize(
    ("result", "error"),
    [(BUILT, None), (WorkerResult(ok=False, message="no space", code="disk_full"), "disk_full")],
)
async def test_a_worker_is_a_span_of_its_own(result: WorkerResult, error: str | None) -> None:
    """It is named after what was run, and as long as that took."""
    kept = Traced()
    async with house(Rules(observers=[kept.observer]), "legacy") as made:
        made.world.workers = ScriptedWorkers({"deploy.build": (Wait(4.0), result)})
        await made.ask()
    span = kept.named("workers.run deploy.build")
    assert said(span).get("error.type") == error
    assert (span.end_time or 0) - (span.start_time or 0) == 4_000_000_000


async def test_a_worker_outlives_its_client() -> None:
    """What it did is on the record, though no run has read it."""
    async with house(Rules(), "legacy") as made:
        await made.ask(leaves_after=1, lingers=2.0)
        assert asyncio.get_running_loop().time() == 4.0
        assert made.world.workers.ended == [BUILD]
        [run] = made.runs
    assert run.outcome == "cancelled"
    assert recorded(run).at_site(WORKERS_RUN, "execute")[0].items == UPDATES


async def test_a_router_that_stops_lets_writes_end_and_their_streams_with_them() -> None:
    """Their flows learn what was done; streams that only read end at once."""
    now = asyncio.get_running_loop().time
    async with house(Rules(), "legacy") as made:
        chatting = asyncio.create_task(made.ask(named("chatting")))
        await asyncio.sleep(4.1)
        building = asyncio.create_task(made.ask(named("building")))
        await asyncio.sleep(0.1)
        cutting = asyncio.create_task(made.router.cut_after_writes())
        await asyncio.sleep(1.0)
        assert (chatting.done(), building.done()) == (True, False)
        await cutting
        assert now() == pytest.approx(8.1, abs=0.3)
        assert made.world.workers.ended == [BUILD, BUILD]
        for stream in (chatting, building):
            assert b"FAILED" in (await stream).wire[-2]


@pytest.mark.parametrize(("most", "ended"), [(0.0, 4.0), (60.0, 4.0), (2.0, 3.0), (-1.0, 3.0)])
async def test_a_router_waits_for_writes_as_long_as_it_may(
    most: float, ended: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Up to their deadlines, or its own limit, or not at all; the log names what it cuts off."""
    now = asyncio.get_running_loop().time
    made = house(Rules(), "legacy")
    server = made.settings.server.model_copy(update={"drain_write_seconds": max(most, 0.0)})
    made.settings = made.settings.model_copy(update={"server": server})
    asking = asyncio.create_task(made.client(CASE.body, leaves_after=1, lingers=1.0))
    await asyncio.sleep(1.0)
    if most < 0:
        made.router.write_patience.end()
    await made.router.aclose(0.1)
    assert now() == pytest.approx(ended, abs=0.3)
    cut = [one.getMessage() for one in caplog.records if "cut off" in one.getMessage()]
    assert [line.partition(" begun")[0].split("write=")[1] for line in cut] == (
        ["workers.run deploy.build"] if ended < 4.0 else []
    )
    await asking
    await asyncio.sleep(10.0)


async def test_a_run_at_work_after_its_end_may_await_its_writes() -> None:
    """It is fenced as lingering only when no write is under way."""

    async def flow(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        chat: Any = FLOWS["legacy"](request, effects)
        async with aclosing(chat) as events:
            async for event in events:
                yield event
        _ = [update async for update in effects.workers.run("execute", BUILD)]
        await effects.ids.new("done")

    made = House(CASE, Rules(limits={"operations": {"workers.run": 60.0}}), legacy=flow)
    made.world.workers = ScriptedWorkers({"deploy.build": (Wait(45.0), BUILT)})
    async with made:
        await made.ask()
        assert ("ids.new", "done") in made.world.made
