"""The snippets that pass an exchange on, as the page shows them, against a server on loopback."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.conftest import ROOT
from tests.docs.transcripts import blocks
from tests.support.scripted_service import Asked, Service, says, serving

PAGE = ROOT / "docs" / "correlation.md"
GATEWAY = "http://127.0.0.1:8081"
NAMES = ("one", "two")
NODE_SERVICE = """
import { createServer } from "node:http";
const server = createServer((request, response) =>
  withExchange(request.headers, async () => {
    await new Promise((done) => setImmediate(done));
    await fetchInExchange(process.argv[2], { method: "POST", body: "{}", headers: { a: "b" } });
    response.end();
  }),
);
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
"""

pytestmark = pytest.mark.sockets

Space = dict[str, Any]
Call = Callable[[Space], Awaitable[object]]


async def by_httpx(space: Space) -> None:
    """Call by httpx."""
    await space["http"].post("/effects", content=b"{}", headers={"a": "b"})


async def by_openai(space: Space) -> None:
    """Call by the openai SDK, with a client that has no address of its own."""
    from openai import AsyncOpenAI, OpenAIError  # noqa: PLC0415 - it takes a while

    hooks = {"request": [space["pass_on"]]}
    async with (
        space["httpx"].AsyncClient(event_hooks=hooks) as http,
        AsyncOpenAI(base_url=space["gateway"], api_key="k", http_client=http) as client,
    ):
        with pytest.raises(OpenAIError):
            await client.with_options(max_retries=0).models.list(extra_headers={"a": "b"})


async def by_aiohttp(space: Space) -> None:
    """Call by aiohttp."""
    async with space["session"].post("/effects", data=b"{}", headers={"a": "b"}):
        pass


async def by_requests(space: Space) -> None:
    """Call by requests, in a thread of the request."""
    place = f"{space['gateway']}/effects"
    await asyncio.to_thread(space["web"].post, place, data=b"{}", headers={"a": "b"})


CLIENTS: dict[str, tuple[str, Call]] = {
    "httpx": ("httpx, and the openai SDK", by_httpx),
    "openai": ("httpx, and the openai SDK", by_openai),
    "aiohttp": ("aiohttp", by_aiohttp),
    "requests": ("requests", by_requests),
}


@asynccontextmanager
async def gateway() -> AsyncIterator[Service]:
    """Start what stands for the gateway: it refuses every call, and remembers its headers."""
    async with serving(says(404, b"{}", b"content-type: application/json")) as service:
        yield service


def exchanges(asked: list[Asked]) -> list[tuple[list[str], ...]]:
    """Return what each call named, and a header of its own, in order."""
    names = ("x-cutover-exchange", "x-cutover-role", "a")
    return sorted(tuple(one.header(name) for name in names) for one in asked)


def expected(*names: str) -> list[tuple[list[str], ...]]:
    """Return what calls for exchanges of these names say."""
    return [([name], ["shadow"], ["b"]) for name in names]


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_python_client_passes_the_exchange_of_its_request_on(client: str) -> None:
    """Two requests at once, each with its own; outside of any nothing is added."""
    heading, call = CLIENTS[client]
    async with gateway() as service:
        space: Space = {"gateway": service.url}
        for code in (*blocks(PAGE, "Python", "python"), *blocks(PAGE, heading, "python")):
            exec(code.replace(GATEWAY, service.url), space)  # noqa: S102 - what the page shows
        both = asyncio.Barrier(len(NAMES))

        async def app(*_: object) -> None:
            await both.wait()
            await call(space)

        middleware = space["PassOn"](app)
        others = [(b"x-cutover-role", b"shadow"), (b"cookie", b"\xff")]
        scopes = [
            {"type": "http", "headers": [(b"x-cutover-exchange", name.encode()), *others]}
            for name in NAMES
        ]
        await asyncio.gather(
            *(asyncio.create_task(middleware(scope, None, None)) for scope in scopes)
        )
        assert exchanges(service.asked) == expected(*NAMES)
        assert all(not one.header("cookie") for one in service.asked)
        service.asked.clear()
        await call(space)
        assert exchanges(service.asked) == [([], [], ["b"])]
        for name, close in (("http", "aclose"), ("session", "close")):
            if name in space:
                await getattr(space[name], close)()
        if "web" in space:
            space["web"].close()


@pytest.mark.slow
async def test_fetch_passes_the_exchange_of_its_request_on(tmp_path: Path) -> None:
    """In Node.js, of two requests at once."""
    if shutil.which("node") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no node")
        pytest.skip("no node")
    script = tmp_path / "service.mjs"
    script.write_text("".join(blocks(PAGE, "Node.js", "js")) + NODE_SERVICE, "utf-8")
    async with gateway() as service:
        node = await asyncio.create_subprocess_exec(
            "node", str(script), f"{service.url}/effects", stdout=asyncio.subprocess.PIPE
        )
        try:
            assert node.stdout is not None
            port = int(await node.stdout.readline())
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

                async def ask(**headers: str) -> None:
                    named = {f"x-cutover-{name}": value for name, value in headers.items()}
                    async with session.post("/", headers=named) as response:
                        assert response.status == 200

                await asyncio.gather(*(ask(exchange=name, role="shadow") for name in NAMES))
                assert exchanges(service.asked) == expected(*NAMES)
                service.asked.clear()
                await ask()
                assert exchanges(service.asked) == [([], [], ["b"])]
        finally:
            node.kill()
            await node.wait()
