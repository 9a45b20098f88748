"""The gateway as it is configured, and services whose models are asked through it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from openai import AsyncOpenAI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from harness import root
from harness.config import ConfigRefused, parse
from harness.live import LiveSettings
from harness.root import equal_shadow
from harness.server.gateway import serving_gateway
from harness.services import Services, open_services
from loadtests.simulator import Answer, Silence
from router.gateway.runs import OpenRuns
from router.shadow import Shadows
from tests.support.client import Client
from tests.support.services import serving
from tests.support.stage import Stage, staged


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ({"gateway": {"host": "0.0.0.0"}}, "gateway.key: needed"),  # noqa: S104 - refused
        ({"console": {"host": "192.0.2.1"}}, "server.flag_token: needed where the console"),
        ({"gateway": {}, "providers": {}}, "providers: the gateway needs one"),
        ({"gateway": {}, "providers": {"v1": {}}}, "providers.v1: a name"),
        ({"gateway": {}, "providers": {"a/b": {}}}, "providers.a/b: a name"),
        ({"gateway": {}, "providers": {"a": {"key": "k"}}}, "providers.a.key: needs gateway.key"),
        ({"gateway": {}, "providers": {"a": {"base_url": "a.example"}}}, "begins with https://"),
        ({"gateway": {"prot": 1}}, "did you mean 'port'"),
    ],
)
def test_a_gateway_that_would_give_keys_away_is_refused(
    tables: dict[str, Any], problem: str
) -> None:
    """So is one that could not work."""
    with pytest.raises(ConfigRefused, match=problem):
        parse(tables)


@pytest.mark.parametrize(
    ("tables", "url"),
    [
        ({}, ""),
        ({"gateway": {}}, "http://127.0.0.1:8081"),
        ({"gateway": {"url": "https://cutover.example/gw/"}}, "https://cutover.example/gw"),
    ],
)
def test_services_are_told_where_the_gateway_is(tables: dict[str, Any], url: str) -> None:
    """By its own address, unless another one is configured."""
    assert parse(tables).gateway_url == url


@pytest.mark.sockets
async def test_a_port_that_is_taken_is_said() -> None:
    """In a line, with the address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = parse({"gateway": {"port": taken.getsockname()[1]}})
        with pytest.raises(ConfigRefused, match=r"cannot listen on 127\.0\.0\.1"):
            async with serving_gateway(settings, OpenRuns()):
                pass


async def _answer(request: Request) -> StreamingResponse:
    """Ask the model through the gateway, and pass on what it says: a service as teams have it."""
    question = (await request.json())["messages"]
    base = f"{request.headers['x-cutover-gateway']}/v1"
    client = AsyncOpenAI(base_url=base, api_key="theirs", max_retries=0)

    async def events() -> AsyncIterator[str]:
        async with client:
            stream = await client.chat.completions.create(
                model="sim-chat", messages=question, stream=True
            )
            async for chunk in stream:
                yield f"data: {chunk.model_dump_json()}\n\n"
            yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


@dataclass
class _Router:
    stage: Stage
    services: Services
    shadows: Shadows
    ask: Any


@asynccontextmanager
async def _router(**tables: Any) -> AsyncIterator[_Router]:
    """Open two such services, and a router with a gateway before them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with AsyncExitStack() as opened:
        stage = await opened.enter_async_context(staged())
        app = Starlette(routes=[Route("/ask", _answer, methods=["POST"])])
        url = await opened.enter_async_context(serving(app, apart=False))
        settings = parse(
            {
                "gateway": {"port": port},
                "stacks": {one: {"url": url, "shadow_safe": True} for one in ("legacy", "graph")},
                "flows": {"mine": {"paths": ["/ask"], "shadow_percent": 100.0}},
                **tables,
            }
        )
        services = await opened.enter_async_context(open_services(settings))
        await opened.enter_async_context(serving_gateway(settings, services.runs))
        shadows = Shadows(equal_shadow)
        running = asyncio.create_task(shadows.run())
        routed = root.application(LiveSettings(settings), stage.world, services, shadows)
        yield _Router(stage, services, shadows, Client(routed))
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


ASKED = {"messages": [{"role": "user", "content": "Hello"}]}


@pytest.mark.sockets
@pytest.mark.slow
async def test_a_shadow_of_a_service_gets_its_models_answer_off_the_tape() -> None:
    """Two services, unmodified but for the base URL: the provider is asked once."""
    async with _router() as router:
        got = await router.ask.post("/ask", ASKED)
        assert b"[DONE]" in got
        for _ in range(3_000):  # sockets have no clock to move
            if router.shadows.ledger:
                break
            await asyncio.sleep(0.01)
        assert router.shadows.ledger == {"equal": 1}
        assert router.stage.model_calls == 1
        assert not router.services.runs.uncorrelated


@pytest.mark.sockets
@pytest.mark.slow
async def test_a_client_that_leaves_ends_the_call_of_a_services_model() -> None:
    """Through the router, the service and the gateway."""
    async with _router() as router:
        router.stage.sim.script([Answer(pieces=("a", "b"), fault=Silence(1))])
        router.ask.leaves_after = 1
        await router.ask.post("/ask", ASKED)
        await router.stage.sim.until(lambda sim: sim.requests[0].cancelled_at is not None)
