"""The examples of services, on Node and Python, behind a router with a gateway."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import httpx
import pytest

from cutover import Exchange, Request
from cutover.errors import Completed
from cutover.flow import ClientRequest
from cutover.wire import find_dialect
from harness.root import equal_shadow
from loadtests.simulator import Answer, FunctionCall, Simulator, SlowFirst
from router.driver import Candidate
from router.exchange import Served, finish
from router.gateway import Gateway, GatewaySettings, Provider, open_connections
from router.gateway.runs import OpenRuns
from router.serve import serve
from router.services import Address, Service, ServiceFlow, open_session
from router.shadow import play
from tests.support.services import serving

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[3] / "examples"
DIALECT = find_dialect("chat-completions")
FLOW = ServiceFlow("shop", {"/chat": ("POST",)}, DIALECT, {"user": "body.user"})
ORDERING = FunctionCall(name="create_order", arguments='{"item": "tea", "grams": 100}')
SLOW = SlowFirst(seconds=0.3)
SAID = "One moment. Here is Order 1."


@dataclass(slots=True)
class Shop:
    """The provider, the gateway before it, and two services: `node` and `python`."""

    sim: Simulator
    urls: dict[str, str]
    key: str
    session: Any
    runs: OpenRuns
    gateway: str
    node: asyncio.subprocess.Process

    def candidate(self, name: str) -> Candidate:
        """Return a service as a stack."""
        back = self.runs, self.gateway, self.key
        service = Service(Address(self.urls[name]), DIALECT, self.session, *back)
        return Candidate(name, service, remote=True, shadow_safe=True)

    async def ask(self, *names: str) -> Served:
        """Order tea from the first of several services."""
        headers = [("content-type", "application/json")]
        asked = ClientRequest("POST", "/chat", "/chat", headers, b'{"message": "Tea, please."}')
        request: Request[Any, Any] = Request(FLOW.body(asked), None, "/chat", headers)
        served = Served("exchange", FLOW, request, Exchange(), names[0])
        frames = serve(served, [self.candidate(one) for one in names], _no_pause)
        async for _ in frames:
            pass
        await finish(served)
        return served

    async def orders(self, name: str) -> Any:
        """Return the orders that a service has made in its own process."""
        async with httpx.AsyncClient() as client:
            return (await client.get(f"{self.urls[name]}/orders")).json()


async def _no_pause(*_: Any) -> None:
    raise AssertionError


@pytest.fixture
async def shop(request: pytest.FixtureRequest, monkeypatch: Any) -> AsyncIterator[Shop]:
    """Open a shop; the marker's argument is the gateway's key."""
    key = getattr(request, "param", "")
    monkeypatch.setenv("CUTOVER_GATEWAY_KEY", key)
    runs = OpenRuns()
    async with Simulator() as sim, open_connections() as asking, open_session() as session:
        sim.on(
            lambda one: one.messages[-1].role == "tool", Answer(text="Here is Order 1.", fault=SLOW)
        )
        sim.on("Tea", Answer(text="One moment. ", tool_calls=(ORDERING,)))
        monkeypatch.setenv("OPENAI_BASE_URL", sim.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-theirs")
        monkeypatch.setenv("MODEL", "sim-chat")
        provider = Provider("openai", sim.base_url)
        gateway = Gateway(GatewaySettings([provider], key), runs, asking)
        async with (
            serving(gateway, apart=False) as at,
            on_node() as (node, process),
            on_python() as python,
        ):
            yield Shop(sim, {"node": node, "python": python}, key, session, runs, at, process)


@asynccontextmanager
async def on_node() -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Run the example on Node; yield its URL and its process."""
    if (node := shutil.which("node")) is None:
        pytest.skip("node is not installed")
    process = await asyncio.create_subprocess_exec(
        *(node, str(EXAMPLES / "node_service" / "server.mjs")),
        env={**os.environ, "PORT": "0"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        port = (await process.stdout.readline()).decode().strip().partition("port=")[2]
        yield f"http://127.0.0.1:{port}", process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def on_python() -> AsyncIterator[str]:
    """Serve the example on Python, imported afresh; yield its URL."""
    spec = spec_from_file_location("python_service", EXAMPLES / "python_service.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    async with serving(module.app) as url:
        yield url


@pytest.mark.parametrize("shop", ["", "secret"], indirect=True)
async def test_a_shadow_in_the_other_language_is_equal_and_does_nothing(shop: Shop) -> None:
    """One order and two calls of the model an exchange, whatever is played."""
    for first, other in (("node", "python"), ("python", "node")):
        before = await shop.orders(other)
        served = await shop.ask(first)
        assert served.outcome == Completed()
        assert served.sent.texts["content"] == SAID
        names = [one.call.name for one in served.tape.entries]
        assert names == ["model.chat", "orders.create", "model.chat"]
        played = await play(served.tape, FLOW, served.request, shop.candidate(other))
        assert equal_shadow(served, played)
        assert await shop.orders(first) == [{"item": "tea", "grams": 100}]
        assert await shop.orders(other) == before
    assert len(shop.sim.requests) == 4


async def test_python_goes_on_where_node_was_killed(shop: Shop) -> None:
    """The order is made once, and the answer that was under way is not bought again."""
    asking = asyncio.create_task(shop.ask("node", "python"))
    await shop.sim.until(lambda sim: len(sim.requests) == 2)
    shop.node.kill()
    served = await asking
    assert served.outcome == Completed()
    assert served.sent.texts["content"] == SAID
    assert [one.candidate.name for one in served.runs] == ["node", "python"]
    assert await shop.orders("python") == []
    assert len(shop.sim.requests) == 2


async def test_without_a_router_the_services_are_themselves(shop: Shop) -> None:
    """A client of their own; a header cannot send what they ask elsewhere."""
    async with httpx.AsyncClient(timeout=30) as client:
        for name in ("node", "python"):
            url = f"{shop.urls[name]}/chat"
            answer = await client.post(url, json={"message": "Tea, please."})
            assert answer.text.endswith("data: [DONE]\n\n")
            assert await shop.orders(name) == [{"item": "tea", "grams": 100}]
            headers = {"x-cutover-gateway": "http://evil.example/runs/x"}
            refused = await client.post(url, json={"message": "x"}, headers=headers)
            assert refused.status_code == 403
