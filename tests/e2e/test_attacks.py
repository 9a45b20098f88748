"""Attempts at the operators' routes, and at smuggling requests past the router, over sockets."""

from __future__ import annotations

import asyncio
import itertools
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import RouterProcess, share
from tests.support.services import serving

pytestmark = [pytest.mark.nightly, pytest.mark.sockets]

SMUGGLING: dict[str, str] = tomllib.loads(
    Path(__file__).with_name("smuggling.toml").read_text("utf-8")
)
TOKEN = "s3cret"
FLAGS = b'{"flow": "asked", "enable_langgraph": false}'
PATHS = [
    *("/cutover/flags", "/cutover/flags/", "//cutover/flags", "/cutover//flags", "/CUTOVER/FLAGS"),
    *("/cutover/%66lags", "/cutover/flags%2f", "/ask/../cutover/flags", "/cutover/flags%00"),
    *(f"/cutover/flags?token={TOKEN}", f"/cutover/flags;{TOKEN}", "/cutover/status"),
    f"/cutover/status?authorization=Bearer%20{TOKEN}",
]
CREDENTIALS = [
    *("", "authorization: Bearer", "authorization: Bearer wrong", f"cookie: token={TOKEN}"),
    *(f"authorization: {TOKEN}", f"authorization: Basic {TOKEN}", f"x-cutover-qa-key: {TOKEN}"),
    *(f"authorization: Bearer {TOKEN[:-1]}", f"authorization: Bearer {TOKEN}1"),
    *(f"authorization: Bearer {TOKEN.upper()}", "authorization: Bearer \xff"),
    *("x-forwarded-for: 127.0.0.1", f"proxy-authorization: Bearer {TOKEN}"),
]


@asynccontextmanager
async def attacked(folder: Path) -> AsyncIterator[tuple[RouterProcess, list[str]]]:
    """Serve a flow of one service behind a router with a token; yield what the service is asked."""
    asked: list[str] = []

    async def service(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            asked.append(scope["path"])
            while (await receive()).get("more_body"):
                pass
            headers = [(b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"said"})

    async with serving(service) as url:
        tables = {
            "server": {"flag_token": TOKEN},
            "stacks": {"legacy": {"url": url}},
            "flows": {"asked": {**share(0.0), "paths": ["/ask"]}},
        }
        async with RouterProcess(folder, tables) as router:
            yield router, asked


async def answers(router: RouterProcess, sent: bytes) -> bytes:
    """Send bytes, and return all that comes until the connection ends or nothing more comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
    writer.write(sent)
    got = b""
    try:
        async with asyncio.timeout(5):
            while more := await reader.read(1 << 16):
                got += more
    except (TimeoutError, ConnectionError):
        pass  # a request that lacks its end is waited for
    writer.close()
    return got


async def test_nothing_but_the_token_opens_the_routes_of_operators(tmp_path: Path) -> None:
    """169 spellings of paths and credentials: nothing is changed, and nothing shown."""
    async with attacked(tmp_path) as (router, asked):
        config = tmp_path / f"{router.port}.toml"
        before = config.read_bytes()
        for path, credentials in itertools.product(PATHS, CREDENTIALS):
            method = "GET" if "status" in path else "POST"
            head = f"{method} {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n"
            head += f"{credentials}\r\n" if credentials else ""
            head += f"content-length: {len(FLAGS)}\r\n\r\n"
            got = await answers(router, head.encode("latin-1") + FLAGS)
            assert got.split(b" ")[1] in {b"400", b"401", b"404", b"405"}, (path, credentials, got)
            assert TOKEN.encode() not in got
        assert config.read_bytes() == before
        assert asked == []
        right = f"authorization: Bearer {TOKEN}\r\ncontent-length: {len(FLAGS)}\r\n\r\n"
        head = f"POST /cutover/flags HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{right}"
        assert b" 200 " in await answers(router, head.encode() + FLAGS)
        assert config.read_bytes() != before


async def test_no_request_is_smuggled_past_the_router(tmp_path: Path) -> None:
    """73 requests that readers split differently: the service sees none within another."""
    async with attacked(tmp_path) as (router, asked):

        async def attempt(name: str, sent: str) -> None:
            got = await answers(router, sent.encode("latin-1", "replace"))
            heads = got.count(b"HTTP/1.1 ")
            assert heads <= 2, (name, got)
            assert b"smuggled" not in got, (name, got)

        await asyncio.gather(*(attempt(*one) for one in SMUGGLING.items()))
        assert set(asked) <= {"/ask"}
        assert b"said" in await answers(
            router,
            b"POST /ask HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        )
