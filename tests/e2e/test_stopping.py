"""The router stops: streams end well or honestly, whatever a stack does about its end."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from contract.records import decode_run
from cutover.server.serve import EXIT_SECONDS
from loadtests.simulator import running
from router.serving.stack import LocalStack
from router.stack import StackName
from tests.e2e.processes import RouterProcess, router_process
from tests.support.deployment import (
    PLANTED_KEY,
    Answer,
    Deployment,
    Setup,
    captured,
    deployed,
    first_turn,
    until,
)
from tests.support.faulty_stacks import begins_and_hangs
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.sockets


MODELS = """
[models.brief]
provider = "simulated"
model = "sim-chat?rate=20&tokens=20"
"""
STREAMS = 5
STOPPED = ["FAILED", "END"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "drain", "steps", "outcome"),
    [("brief", PATIENCE_S, ["SUCCESS", "END"], "completed"), ("slow", 0.2, STOPPED, "failed")],
)
async def test_sigterm_lets_streams_finish_and_keeps_every_capture(
    tmp_path: Path, model: str, drain: float, steps: list[str], outcome: str
) -> None:
    """Brief streams end well, long ones in failure frames; exit status 0; all is captured."""
    setup = Setup(more=MODELS, drain_seconds=drain)
    async with (
        running(api_key=PLANTED_KEY) as provider,
        router_process(tmp_path, provider.base_url, setup) as router,
        aiohttp.ClientSession() as session,
    ):
        before = await router.ask(session, {"message_id": "before", "content": "Hello"})
        speaks = asyncio.Semaphore(0)
        bodies = [first_turn(f"m{number}", model) for number in range(STREAMS)]
        asked = [asyncio.create_task(_ask(router, session, body, speaks)) for body in bodies]
        for _ in asked:
            await speaks.acquire()
        router.child.send_signal(signal.SIGTERM)
        await router.refuses()
        answers = await asyncio.gather(*asked)
        assert await router.child.wait() == 0
    assert before.steps[-2:] == ["SUCCESS", "END"]
    for answer in answers:
        assert answer.steps == ["ACCEPT", "START_REPLY", "SEND", *steps]
        if steps == STOPPED:
            assert answer.events[-2] == {"step": "FAILED", "code": "stopping"}
    runs = [decode_run(line) for line in captured(tmp_path).splitlines()]
    exchanges = {answer.headers["x-cutover-exchange"] for answer in [before, *answers]}
    assert {run.exchange for run in runs} == exchanges
    assert sorted(run.outcome for run in runs) == sorted(["completed", *[outcome] * STREAMS])


async def _ask(
    router: RouterProcess,
    session: aiohttp.ClientSession,
    body: dict[str, object],
    speaks: asyncio.Semaphore,
) -> Answer:
    """Ask and read everything; `speaks` is released with the first words."""
    async with router.post(session, body) as response:
        read = b""
        while b"SEND" not in read:
            read += await response.content.readline()
        speaks.release()
        return Answer(response.status, response.headers, read + await response.content.read())


@pytest.mark.parametrize("stack", ["legacy", "graph"])
async def test_what_is_cut_ends_in_failure_frames_and_frees_its_lock(
    tmp_path: Path, stack: StackName
) -> None:
    """The stack that serves is stopped, no other one takes over, no shadow is blamed."""
    async with deployed(tmp_path, Setup(stack=stack, shadow=100)) as place:
        slow = {"message_id": "m", "content": "Hello", "model_config": {"model_id": "slow"}}
        asking = asyncio.create_task(place.ask(slow))
        await until(lambda: _model_is_asked(place))
        place.services.router.cut()
        answer = await asking
        assert answer.steps[-2:] == ["FAILED", "END"]
        assert answer.events[-2] == {"step": "FAILED", "code": "stopping"}
        await place.provider.ledger.until("cancelled", 1)
        again = await place.ask({"message_id": "m", "content": "Hello"})
        assert again.steps[-2:] == ["SUCCESS", "END"]
        await place.settled()
        assert place.books() == {"cancelled(stopping)": 1, "compared(equal)": 1}
        assert place.services.router.counts.takeovers == 0


async def test_what_has_sent_nothing_yet_is_503(tmp_path: Path) -> None:
    """Before the first frame there is still a status to say it with."""
    begun = asyncio.Event()

    names: tuple[StackName, ...] = ("legacy", "graph")
    stacks = {name: LocalStack(name, {"chat": begins_and_hangs(begun)}, "") for name in names}
    async with deployed(tmp_path, Setup(stack="graph", stacks=stacks)) as place:
        asking = asyncio.create_task(place.ask({"message_id": "m", "content": "Hello"}))
        await begun.wait()
        place.services.router.cut()
        answer = await asking
        assert (answer.status, answer.problem["code"]) == (503, "stopping")
        assert place.services.router.counts.fallbacks == 0


async def test_a_router_that_stops_takes_nothing_more(tmp_path: Path) -> None:
    """Who still has a connection is told to go elsewhere; `/readyz` says so, too."""
    async with deployed(tmp_path) as place:
        place.services.router.draining = True
        answer = await place.ask({"message_id": "m", "content": "Hello"})
        assert (answer.status, answer.problem["code"]) == (503, "stopping")
        assert answer.headers["retry-after"] == "1"
        async with place.session.get(f"{place.url}/readyz") as response:
            assert response.status == 503
            assert (await response.json())["status"] == "stopping"
        assert place.services.router.counts.requests == 0


async def test_leaving_the_house_flushes_the_captures(tmp_path: Path) -> None:
    """What was served, shadowed and said about it is on disk once everything is closed."""
    async with deployed(tmp_path, Setup(shadow=100)) as place:
        answer = await place.ask({"message_id": "m", "content": "Hello"})
        exchange = answer.headers["x-cutover-exchange"]
        feedback = {"exchange_id": exchange, "score": 1}
        async with place.session.post(f"{place.url}/feedback", json=feedback) as response:
            assert response.status == 202
    roles = [decode_run(line).role for line in captured(tmp_path, "flow=*").splitlines()]
    assert roles == ["serving", "shadow"]
    assert exchange.encode() in captured(tmp_path, "feedback")


def _model_is_asked(place: Deployment) -> bool:
    counts = place.provider.ledger.counts()
    return counts["in_flight"] == 1


BUILDING = """
[stacks]
graph = "tests.e2e.building_stack:FLOWS"
[tools.python]
modules = ["tests.e2e.building_stack"]
[limits.tools]
build = 60.0
"""


@pytest.mark.slow
@pytest.mark.parametrize(("most", "takes"), [(0.0, 1.5), (0.2, 50)])
async def test_sigterm_lets_a_tool_end_as_long_as_it_may(
    tmp_path: Path, most: float, takes: float
) -> None:
    """The client gets what it has done; where the limit is shorter, the log names what was cut."""
    setup = Setup(stack="graph", more=BUILDING, drain_seconds=0.1, drain_write_seconds=most)
    async with (
        running(api_key=PLANTED_KEY) as provider,
        router_process(tmp_path, provider.base_url, setup) as router,
        aiohttp.ClientSession() as session,
    ):
        async with router.post(session, {"message_id": "m", "content": str(takes)}) as response:
            while b"START_REPLY" not in await response.content.readline():
                pass
            router.child.send_signal(signal.SIGTERM)
            body = await response.read()
        async with asyncio.timeout(PATIENCE_S):
            assert await router.child.wait() == 0
    cut = most > 0
    assert (b"built" in body, b"FAILED" in body) == (not cut, cut)
    assert ("write=tools.run build begun" in (tmp_path / "log").read_text("utf-8")) == cut


STUBBORN = """
[stacks]
graph = "tests.e2e.stubborn_stack:FLOWS"
"""


@pytest.mark.slow
async def test_a_stack_neither_ends_the_process_nor_keeps_it(tmp_path: Path) -> None:
    """`sys.exit` is a crash, in a callback nothing; deaf to its end, it is left behind."""
    setup = Setup(stack="graph", more=STUBBORN, drain_seconds=0.2)
    async with (
        running(api_key=PLANTED_KEY) as provider,
        router_process(tmp_path, provider.base_url, setup) as router,
        aiohttp.ClientSession() as session,
    ):
        exited = await router.ask(session, {"message_id": "1", "content": "exit"})
        called = await router.ask(session, {"message_id": "4", "content": "callback"})
        served = await router.ask(session, {"message_id": "2", "content": "go"})
        async with router.post(session, {"message_id": "3", "content": "stay"}) as response:
            while b"START_REPLY" not in await response.content.readline():
                pass
            began = asyncio.get_running_loop().time()
            router.child.send_signal(signal.SIGTERM)
            assert b"FAILED" in await response.read()
        async with asyncio.timeout(PATIENCE_S):
            assert await router.child.wait() == 0
        took = asyncio.get_running_loop().time() - began
    assert [answer.steps[-2] for answer in (exited, called, served)] == ["SUCCESS"] * 3
    assert took >= EXIT_SECONDS
    runs = [decode_run(line) for line in captured(tmp_path).splitlines()]
    assert [(run.role, run.outcome) for run in runs] == [
        ("serving", "failed"),
        ("fallback", "completed"),
        ("serving", "completed"),
        ("serving", "completed"),
        ("serving", "failed"),
    ]
    log = (tmp_path / "log").read_text("utf-8")
    assert "the process ends while these are still running: tasks: serving graph" in log
    assert "a callback asked for the end of the process" in log
