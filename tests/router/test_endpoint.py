"""The endpoint as a client meets it: refusals, headers, leaving, what the edge refuses."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import text as sql

from cutover import Event, Request
from effects.pauses import Pauses
from harness import root
from harness.config import parse
from harness.live import LiveSettings
from harness.root import equal_shadow
from loadtests.simulator import Answer, Silence, SlowFirst
from router.exchange import Served, finish
from router.pauses import PausedExchanges
from router.shadow import Shadows
from rules.flows import FLOWS
from rules.flows.ops import OpsStep
from tests.support.client import Client
from tests.support.stage import Stage

pytestmark = pytest.mark.virtual

CHAT = {"message_id": "m", "content": "What is 12 * 7?"}


def application(stage: Stage, shadows: Shadows | None = None, **flows: Any) -> FastAPI:
    """Return the application over a stage's world."""
    settings = parse({"flows": flows or {"chat": {}}})
    return root.application(LiveSettings(settings), stage.world, shadows=shadows)


@pytest.mark.parametrize(
    ("body", "media", "status", "code"),
    [
        (CHAT, "text/plain", 415, "not_json"),
        (b"{", "application/json", 400, "no_json"),
        ({"content": "x"}, "application/json", 422, "bad_request"),
        ({"message_id": "m", "content": ""}, "application/json", 422, "bad_request"),
        ({"message_id": "unknown"}, "application/json", 404, "unknown_message"),
        (b'{"message_id": "' + b"m" * (1 << 20) + b'"}', "application/json", 413, "body_too_large"),
    ],
)
async def test_bad_input_is_refused_before_any_frame(
    stage: Stage, body: Any, media: str, status: int, code: str
) -> None:
    """As problem+json with a stable code."""
    client = Client(application(stage))
    answer = json.loads(await client.post("/chat/sse", body, media))
    assert (client.status, answer["code"]) == (status, code)
    assert client.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["/feedback", "/hitl/respond"])
@pytest.mark.parametrize(
    ("body", "media", "status", "code"),
    [
        (b'{"exchange_id": "e", "score": 1}', "text/plain", 415, "not_json"),
        (b"{", "application/json", 400, "no_json"),
        (b'{"exchange_id": "' + b"e" * (1 << 20), "application/json", 413, "body_too_large"),
    ],
)
async def test_operations_refuse_the_same_bodies(
    stage: Stage, path: str, body: bytes, media: str, status: int, code: str
) -> None:
    """A page of another origin can answer no question, and no body fills the memory."""
    client = Client(application(stage, companion={}))
    refusal = json.loads(await client.post(path, body, media=media))
    assert (client.status, refusal["code"]) == (status, code)


async def test_feedback_is_on_an_exchange(stage: Stage) -> None:
    """What cannot be the id of one fills no database."""
    client = Client(application(stage))
    await client.post("/feedback", {"exchange_id": "e" * 65, "score": 1})
    assert client.status == 422


async def test_a_stream_names_its_exchange_and_its_stacks(stage: Stage) -> None:
    """The exchange id is what feedback refers to."""
    client = Client(application(stage, chat={"enable_langgraph": True, "langgraph_percent": 100.0}))
    body = await client.post("/chat/sse", CHAT)
    assert body.endswith(b'data: {"step":"END"}\n\n')
    assert client.headers["x-cutover-assigned"] == client.headers["x-cutover-served"] == "graph"
    feedback = Client(client.app)
    said = {"exchange_id": client.headers["x-cutover-exchange"], "score": 1}
    await feedback.post("/feedback", said)
    assert feedback.status == 204


@pytest.mark.parametrize("percent", [0.0, 100.0])
async def test_a_client_that_leaves_stops_the_model_within_100_ms(
    stage: Stage, percent: float
) -> None:
    """Whichever stack serves, the provider sees the connection end."""
    stage.sim.script([Answer(text="a b c d e f g h", fault=Silence(4))])
    flow = {
        "enable_langgraph": True,
        "langgraph_percent": percent,
        "options": {"yield_interval": 0},
    }
    client = Client(application(stage, chat=flow), leaves_after=4)
    loop = asyncio.get_running_loop()
    await client.post("/chat/sse", CHAT)
    left = loop.time()
    await stage.sim.until(lambda sim: sim.requests[0].cancelled_at is not None)
    cancelled = stage.sim.requests[0].cancelled_at
    assert cancelled is not None
    assert cancelled - left <= 0.1


@pytest.mark.parametrize(
    ("how", "outcome", "code"),
    [("leaves", "left", ""), ("breaks", "left", ""), ("stopped", "failed", "server_stopped")],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_the_log_says_why_a_stream_ended_early(
    stage: Stage, caplog: pytest.LogCaptureFixture, how: str, outcome: str, code: str
) -> None:
    """A server that stops is no client that left; no shadow is compared with either."""
    caplog.set_level("INFO", "cutover.exchange")
    stage.sim.script([Answer(text="a b c d e f g h", fault=Silence(4))])
    shadows = Shadows(equal_shadow)
    app = application(stage, shadows, chat={"shadow_percent": 100.0})
    client = Client(app, leaves_after=3, how=how)
    posting = asyncio.create_task(client.post("/chat/sse", CHAT))
    await asyncio.wait({posting})
    assert posting.cancelled() == (how == "stopped")
    assert posting.cancelled() or posting.exception() is None
    lines: list[str] = []
    for _ in range(1_000):
        lines = [one for name, _, one in caplog.record_tuples if name == "cutover.exchange"]
        if lines:
            break
        await asyncio.sleep(0.001)
    [line] = lines
    assert f"outcome={outcome} code={code} " in line
    async with asyncio.timeout(1):
        await shadows.settled()  # nothing runs what is offered


async def ask(stage: Stage, app: FastAPI) -> dict[str, Any]:
    """Post a request that pauses, and return the decision that continues it."""
    await Client(app).post("/ops/react", {"session_id": "s", "input": "restart web"})
    waiting = await Pauses(stage.world.database).open_of("ops", "s")
    assert waiting is not None
    return {"approval_id": waiting.id, "approved": False, "by": "ann"}


@pytest.mark.parametrize(
    ("words", "status", "resumed"), [("check the memory", 200, 410), ("tell me a joke", 503, 200)]
)
async def test_a_new_turn_that_is_served_expires_the_open_question(
    stage: Stage, words: str, status: int, resumed: int
) -> None:
    """One that ends with an error status, here since the model is down, changes nothing."""
    app = application(stage, ops={})
    decision = await ask(stage, app)
    stage.sim.on(lambda _: True, Answer(status=503))
    turn, answering = Client(app), Client(app)
    await turn.post("/ops/react", {"session_id": "s", "input": words})
    assert turn.status == status
    await answering.post("/ops/resume", decision)
    assert answering.status == resumed


async def test_a_question_that_is_the_first_frame_is_open(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new turn expires the questions before it, and not its own."""
    legacy = root.stacks("ops")["legacy"]

    async def without_steps(request: Request[Any, Any]) -> AsyncIterator[Event]:
        async with aclosing(legacy(request)) as events:  # type: ignore[type-var]
            async for event in events:
                if not isinstance(event, OpsStep):
                    yield event

    monkeypatch.setattr(root, "stacks", lambda _: {"legacy": without_steps})
    app = application(stage, ops={})
    decision, answering = await ask(stage, app), Client(app)
    await answering.post("/ops/resume", decision)
    assert answering.status == 200


async def _breaks_finishing(served: Served, _then: object) -> None:
    await finish(served)
    raise ZeroDivisionError


def _breaks(*_: Any) -> Any:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("name", "broken", "state"),
    [("assign", _breaks, "answered"), ("finish", _breaks_finishing, "done")],
)
async def test_a_claim_ends_whatever_fails(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str, broken: Any, state: str
) -> None:
    """Before the stream and behind it."""
    app = application(stage, ops={})
    decision = await ask(stage, app)
    monkeypatch.setattr(f"router.endpoint.{name}", broken)
    with pytest.raises(ZeroDivisionError):
        await Client(app).post("/ops/resume", decision)
    found = await Pauses(stage.world.database).question(decision["approval_id"])
    assert found is not None
    assert found.state == state


async def test_a_claim_ends_when_its_exchange_cannot_be_restored(stage: Stage) -> None:
    """Also where the request is cancelled meanwhile."""
    reading = asyncio.Event()

    class Slow(Pauses):
        async def journal(self, pause_id: str) -> Any:
            del pause_id
            reading.set()
            await asyncio.Event().wait()

    decision = await ask(stage, application(stage, ops={}))
    flow, slow = FLOWS["ops"], Slow(stage.world.database)
    assert flow.pausing is not None
    request = flow.pausing.resume_request(**decision)
    resuming = asyncio.create_task(PausedExchanges(slow).resume(flow, request, "e"))
    await reading.wait()
    resuming.cancel()
    await asyncio.wait({resuming})
    assert resuming.cancelled()
    found = await slow.question(decision["approval_id"])
    assert found is not None
    assert found.state == "answered"


QA = {"rollout": {"qa_key": "secret"}}


@pytest.mark.parametrize(
    ("headers", "enabled", "served"),
    [
        ({"x-cutover-stack": "graph", "x-cutover-qa-key": "secret"}, True, "graph"),
        ({"x-cutover-stack": "graph", "x-cutover-qa-key": "secret"}, False, "legacy"),
        ({"x-cutover-stack": "graph", "x-cutover-qa-key": "guess"}, True, "legacy"),
        ({"x-cutover-stack": "graph"}, True, "legacy"),
        ({"x-cutover-stack": "other", "x-cutover-qa-key": "secret"}, True, "legacy"),
    ],
)
async def test_a_tester_asks_for_a_stack(
    stage: Stage, headers: dict[str, str], enabled: bool, served: str
) -> None:
    """With the key, and only while graph is on at all."""
    settings = parse({"flows": {"chat": {"enable_langgraph": enabled}}} | QA)
    client = Client(root.application(LiveSettings(settings), stage.world), sends=headers)
    await client.post("/chat/sse", CHAT)
    assert client.headers["x-cutover-served"] == served


async def test_more_streams_than_are_allowed_are_refused(stage: Stage) -> None:
    """At once, and to be tried again; the place is free when a stream ends."""
    stage.sim.script([Answer(text="a b", fault=Silence(1)), Answer(text="c"), Answer(text="d")])
    settings = parse({"limits": {"streams": 1}, "flows": {"chat": {}}})
    app = root.application(LiveSettings(settings), stage.world)
    first = asyncio.create_task(Client(app).post("/chat/sse", CHAT))
    await stage.sim.until(lambda sim: bool(sim.requests))
    second = Client(app)
    refusal = json.loads(await second.post("/chat/sse", CHAT | {"message_id": "n"}))
    assert (second.status, refusal["code"]) == (503, "overloaded")
    assert second.headers["retry-after"] == "1"
    first.cancel()
    await asyncio.wait({first})
    third = Client(app)
    await third.post("/chat/sse", CHAT | {"message_id": "o"})
    assert third.status == 200


async def test_a_sticky_conversation_stays_where_it_began(stage: Stage) -> None:
    """Through every share, but not through the switch."""

    async def served(percent: float, chat: str, number: int, *, on: bool = True) -> str:
        flow = {"enable_langgraph": on, "langgraph_percent": percent, "sticky": "chat_id"}
        client = Client(application(stage, chat=flow))
        await client.post("/chat/sse", CHAT | {"message_id": f"{chat}{number}", "chat_id": chat})
        return client.headers["x-cutover-served"]

    assert [await served(100.0, "a", 1), await served(0.0, "a", 2)] == ["graph", "graph"]
    assert [await served(0.0, "b", 1), await served(100.0, "b", 2)] == ["legacy", "legacy"]
    assert await served(100.0, "a", 3, on=False) == "legacy"


@pytest.mark.parametrize(
    ("fault", "ends", "served"),
    [
        (SlowFirst(5.0), b'data: {"step":"SUCCESS"', True),
        (Silence(2), b'data: {"step":"FAILED"', False),
    ],
)
async def test_a_stopping_server_lets_streams_end(
    stage: Stage, fault: Any, ends: bytes, *, served: bool
) -> None:
    """In time, or in failure events; it is not ready, and refuses new ones meanwhile."""
    stage.sim.script([Answer(text="a b c d", fault=fault)])
    app = application(stage)
    first = asyncio.create_task(Client(app).post("/chat/sse", CHAT))
    await stage.sim.until(lambda sim: bool(sim.requests))
    began = asyncio.get_running_loop().time()
    draining = asyncio.create_task(app.state.drain(30.0))
    await asyncio.sleep(1.0)
    refused, probe = Client(app), Client(app)
    refusal = json.loads(await refused.post("/chat/sse", CHAT | {"message_id": "n"}))
    assert (refused.status, refusal["code"]) == (503, "stopping")
    assert json.loads(await probe.post("/readyz", b"", method="GET")) == {"status": "draining"}
    assert probe.status == 503
    await draining
    took = asyncio.get_running_loop().time() - began
    assert (took < 30.0) is served
    assert took < 31.0
    stream = await first
    assert ends in stream
    assert stream.endswith(b'data: {"step":"END"}\n\n')


async def test_a_server_is_ready_while_its_database_answers(stage: Stage) -> None:
    """It recovers when the cause is gone."""
    app = application(stage)
    for _ in range(2):
        probe = Client(app)
        assert json.loads(await probe.post("/readyz", b"", method="GET")) == {"status": "ready"}
        async with stage.world.database.engine.connect() as only:  # the pool holds one
            await only.execute(sql("SELECT 1"))
            away = Client(app)
            found = json.loads(await away.post("/readyz", b"", method="GET"))
            assert (away.status, found) == (503, {"status": "the database takes no write"})


@pytest.mark.parametrize("answer", [(200, b"[]"), (500, b"[]"), (200, b"<p>Log in</p>")])
async def test_a_server_is_ready_while_conversations_can_be_read(
    stage: Stage, answer: tuple[int, bytes]
) -> None:
    """From a Memory service."""
    status, body = answer
    transport = httpx.MockTransport(lambda _: httpx.Response(status, content=body))
    async with httpx.AsyncClient(base_url="http://memory.test", transport=transport) as client:
        stage.world = replace(stage.world, http=client)
        found = await Client(application(stage)).post("/readyz", b"", method="GET")
        assert (b"no conversation can be read" in found) is (answer != (200, b"[]"))


async def test_a_client_is_in_a_hurry_until_its_first_text(stage: Stage) -> None:
    """Also while its model is silent: a shadow that begins then is in the way when it answers."""
    stage.sim.script([Answer(text="a b", fault=Silence(1))])
    app = application(stage)
    hurried = app.state.drain.__self__.hurried
    chat = asyncio.create_task(Client(app).post("/chat/sse", CHAT))
    assert not hurried()
    await stage.sim.until(lambda sim: bool(sim.requests))
    assert hurried()
    await asyncio.sleep(1.0)
    assert not hurried()
    await chat
