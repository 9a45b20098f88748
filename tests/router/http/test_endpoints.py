"""A flow's endpoint: headers, connections, slow clients, and unexpected errors."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
import pytest

from contract.flows.chat import Accept, StartReply
from cutover.wiring.stacks import load_stacks
from router.http.app import create_app
from router.http.connection import timed_send
from router.serving.stack import LocalStack
from tests.support.collector import without_collector
from tests.support.deployment import Setup, deployed, tasks, until

if TYPE_CHECKING:
    from contract.flow import Event
    from router.stack import StackName

pytestmark = pytest.mark.sockets

HELLO = {"message_id": "m", "content": "Hello"}
FALLBACK = "fallback_to_graph = true\nlanggraph_percent"
SECRET = "the words of an exception"
STACKS: tuple[StackName, ...] = ("legacy", "graph")


class Boom(Exception):
    """An unexpected error."""


async def crashing_at_once(_: object, __: object) -> AsyncIterator[Event]:
    """Crash before the first event."""
    if SECRET:
        raise Boom(SECRET)
    yield Accept()


async def crashing_later(_: object, __: object) -> AsyncIterator[Event]:
    """Crash after the commit point."""
    yield Accept()
    yield StartReply()
    raise Boom(SECRET)


async def test_a_stream_says_who_serves_and_is_kept_by_nobody(tmp_path: Path) -> None:
    """The headers that proxies, caches and people need."""
    async with deployed(tmp_path, Setup(stack="graph")) as place:
        headers = (await place.ask(HELLO)).headers
        fingerprint = load_stacks()["graph"].fingerprint
        assert headers["content-type"] == "text/event-stream; charset=utf-8"
        assert headers["cache-control"] == "no-store"
        assert headers["x-accel-buffering"] == "no"
        assert headers["x-cutover-assigned"] == "graph"
        assert headers["x-cutover-served"] == f"graph {fingerprint}"
        assert len(headers["x-cutover-exchange"]) == 40
        assert "server" not in headers


async def test_a_connection_serves_one_request_after_the_other(tmp_path: Path) -> None:
    """Streams, refusals and bad bodies leave a connection usable."""
    made: list[object] = []

    async def count(*about: object) -> None:
        made.append(about)

    tracing = aiohttp.TraceConfig()
    tracing.on_connection_create_end.append(count)
    async with (
        deployed(tmp_path) as place,
        aiohttp.ClientSession(trace_configs=[tracing]) as session,
    ):
        for number, body in enumerate(
            [HELLO, {"message_id": "x"}, {}, HELLO | {"message_id": "y"}]
        ):
            async with session.post(f"{place.url}/chat/sse", json=body) as response:
                assert response.status == (200, 404, 422, 200)[number]
                await response.read()
        assert len(made) == 1


@pytest.mark.parametrize("stack", STACKS)
async def test_crashes_before_the_first_frame_are_one_500(tmp_path: Path, stack: StackName) -> None:
    """Both stacks were tried; the client is told nothing of why."""
    stacks = {name: LocalStack(name, {"chat": crashing_at_once}, "") for name in STACKS}
    async with deployed(tmp_path, Setup(stack=stack, stacks=stacks)) as place:
        text = place.watched.path.read_text("utf-8")
        place.edit(text.replace("langgraph_percent", FALLBACK))
        answer = await place.ask(HELLO)
        assert (answer.status, answer.problem["code"]) == (500, "internal")
        assert SECRET not in answer.body.decode()
        assert {run.outcome for run in await place.lines()} == {"failed"}
        assert len(await place.lines()) == 2


@pytest.mark.parametrize("stack", STACKS)
async def test_a_crash_nobody_can_take_over_ends_in_failure_frames(
    tmp_path: Path, stack: StackName
) -> None:
    """Never silently cut, never with an exception's text."""
    stacks = {name: LocalStack(name, {"chat": crashing_later}, "") for name in STACKS}
    async with deployed(tmp_path, Setup(stack=stack, stacks=stacks)) as place:
        answer = await place.ask(HELLO)
        assert answer.steps == ["ACCEPT", "START_REPLY", "FAILED", "END"]
        assert answer.events[-2] == {"step": "FAILED", "code": "internal"}
        assert SECRET not in answer.body.decode()


@pytest.mark.parametrize("stack", STACKS)
async def test_a_reader_that_does_not_read_can_leave(tmp_path: Path, stack: StackName) -> None:
    """The server holds back its frames; when the client goes, nothing stays behind."""
    model = '[models.flood]\nprovider = "simulated"\nmodel = "sim-chat?tokens=3000&limit=3000"\n'
    async with deployed(tmp_path, Setup(stack=stack, more=model)) as place:
        body = HELLO | {"model_config": {"model_id": "flood"}}
        async with place.post(body) as response:
            await response.content.readline()
            await until(lambda: place.provider.ledger.counts()["in_flight"] == 0)
            response.close()
        run = await place.run()
        assert run.outcome in {"cancelled", "completed"}
        await until(lambda: not tasks("serving"))


async def test_an_error_nobody_foresaw_is_a_problem_too(tmp_path: Path) -> None:
    """The framework raises it again, for the log; the client sees a problem."""

    def broken() -> dict[str, str]:
        raise Boom(SECRET)

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/readyz",
        "raw_path": b"/readyz",
        "query_string": b"",
        "headers": [],
    }
    async with deployed(tmp_path) as place:
        with pytest.raises(Boom):
            await create_app(place.services.router, broken)(scope, receive, send)
    assert sent[0]["status"] == 500
    assert (b"content-type", b"application/problem+json") in sent[0]["headers"]
    assert msgspec.json.decode(sent[1]["body"])["code"] == "internal"
    assert SECRET.encode() not in sent[1]["body"]


@pytest.mark.untraced
@pytest.mark.slow
async def test_many_at_once_are_all_served(tmp_path: Path) -> None:
    """Forty streams side by side, both stacks, every one whole and shadowed."""
    async with deployed(tmp_path, Setup(shadow=100)) as place:
        text = place.watched.path.read_text("utf-8")
        place.edit(text.replace("langgraph_percent = 0", "langgraph_percent = 50"))
        asked = [place.ask({"message_id": f"m{n}", "content": f"Tell {n}"}) for n in range(40)]
        answers = await asyncio.gather(*asked)
        assert {tuple(answer.steps) for answer in answers} == {
            ("ACCEPT", "START_REPLY", "SEND", "SUCCESS", "END")
        }
        await place.settled()
        assert place.books() == {"compared(equal)": 40}


async def test_the_task_of_a_request_is_freed_at_once() -> None:
    """The time limit of its sending, which refers to the task, is freed when it is over."""

    async def send(_: object) -> None:
        pass

    async def answer() -> None:
        async with timed_send(send, 60.0) as timed:
            await timed({"type": "http.response.body"})

    with without_collector():
        task = asyncio.create_task(answer())
        gone = weakref.ref(task)
        await task
        del task
        await asyncio.sleep(0)
        assert gone() is None
