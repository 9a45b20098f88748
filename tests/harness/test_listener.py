"""What the HTTP server does about heads of requests that are too long, or never end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn

from harness.server import listener
from harness.server.listener import HEAD_BYTES, BoundedHeads

pytestmark = pytest.mark.sockets

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n"


async def app(_scope: Any, _receive: Any, send: Any) -> None:
    """Answer in an empty body."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a connection to a server."""
    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    state = uvicorn.Server(config).server_state
    loop = asyncio.get_running_loop()
    serving = await loop.create_server(lambda: BoundedHeads(config, state, {}), "127.0.0.1", 0)
    async with serving:
        reader, writer = await asyncio.open_connection(*serving.sockets[0].getsockname())
        yield reader, writer
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("begin", [b"GET /", REQUEST + b"x-a: ", REQUEST + b"x-a: y\r\n" * 5_000])
async def test_a_head_without_end_is_refused(begin: bytes, kept: bool) -> None:
    """Whether its address is long, a header is, or there are many."""
    async with connected() as (reader, writer):
        if kept:
            writer.write(REQUEST + b"\r\n")
            await reader.readuntil(b"\r\n\r\n")
        writer.write(begin)
        writer.write(b"x" * HEAD_BYTES * 8)
        with suppress(ConnectionError):  # the rest is not read
            assert (await reader.read()).startswith(b"HTTP/1.1 400 Bad Request")


@pytest.mark.parametrize(
    "line", [b"GET http://x/", b"GET HTTPS://other.example:8443/", b"CONNECT x:443", b"OPTIONS *"]
)
async def test_an_address_in_the_place_of_a_path_is_refused(line: bytes) -> None:
    """With all that follows on its connection: it is for a proxy, which the router is not."""
    async with connected() as (reader, writer):
        writer.write(line + b" HTTP/1.1\r\nhost: x\r\n\r\n" + REQUEST + b"\r\n")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400 Bad Request")
        assert b" 204 " not in answer


async def test_a_long_head_passes_on_a_kept_connection() -> None:
    """And long bodies are none of it."""
    async with connected() as (reader, writer):
        for _ in range(3):
            long = b"x-a: %b\r\n" % (b"y" * (HEAD_BYTES - 4_096))
            body = b"content-length: %d\r\n\r\n%b" % (HEAD_BYTES, b"z" * HEAD_BYTES)
            writer.write(REQUEST + long + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 204")


@pytest.mark.parametrize("kept", [False, True])
async def test_a_head_that_does_not_end_is_not_awaited(
    monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """Nor one that does not begin, on a new connection and on one that was kept."""
    if not kept:
        monkeypatch.setattr(listener, "HEAD_SECONDS", 0)
    async with connected() as (reader, writer):
        if kept:
            writer.write(REQUEST + b"\r\n")
            assert b"204" in await reader.readuntil(b"\r\n\r\n")
            monkeypatch.setattr(listener, "HEAD_SECONDS", 0)
            writer.write(REQUEST)
        assert not await reader.read()
