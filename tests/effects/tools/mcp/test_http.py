"""A real server over streamable HTTP, in the test's own loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from contract.model import ToolResult
from effects.model import Secret
from effects.tools.mcp import McpServer
from tests.effects.tools.mcp.connecting import names, run, tools_of, until, why_not
from tests.support.asgi import served
from tests.support.deployment import until as until_logged
from tests.support.mcp_tools_server import tools_server
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.virtual]

TOKEN = "open-sesame"


class Guarded:
    """An application only those with the token may use."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if dict(scope["headers"]).get(b"authorization") == self._token:
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b"who are you, hush?"})


@asynccontextmanager
async def there(token: str = TOKEN) -> AsyncIterator[str]:
    """Serve the tools; gives their URL."""
    server = tools_server()
    app = server.streamable_http_app()
    async with server.session_manager.run(), served(Guarded(app, token)) as url:
        yield f"{url}/mcp"


def at(url: str, token: str = TOKEN, timeout: float = 20.0) -> McpServer:
    """Name the server at a URL."""
    return McpServer("web", "web__", url=url, token=Secret(token), timeout=timeout)


@pytest.mark.slow
async def test_every_kind_of_answer() -> None:
    """Text as it is, structures as JSON, the rest by name; failures by their code alone."""
    async with there() as url, tools_of(at(url)) as (registry, _):
        answers = {
            name: await run(registry, f"web__{name}", arguments)
            for name, arguments in {
                "echo": '{"text":"家"}',
                "add": '{"a":1,"b":2}',
                "image": "",
                "mixed": "",
                "structured": "",
                "fail": "",
            }.items()
        }
        assert answers == {
            "echo": ToolResult("家"),
            "add": ToolResult("3"),
            "image": ToolResult("[image image/png, 5 bytes, not shown]"),
            "mixed": ToolResult("one\n[resource a file: file:///a]\ntwo"),
            "structured": ToolResult('{"n":1,"label":"家"}'),
            "fail": ToolResult(error="tool_failed"),
        }
        bad = await run(registry, "web__add", '{"a":"1"}')
        assert bad == ToolResult(error="bad_arguments")
        big = (await run(registry, "web__big")).content
        assert big[65_536:] == "\n[134464 characters left out]"


@pytest.mark.slow
async def test_an_answer_without_end_fails_alone() -> None:
    """It is not read to its end, and the connection stands."""
    async with there() as url, tools_of(at(url)) as (registry, connection):
        answer = await run(registry, "web__big", '{"size":5000000}')
        assert answer == ToolResult(error="tool_failed")
        assert names(connection)
        assert await run(registry, "web__echo", '{"text":"a"}') == ToolResult("a")


@pytest.mark.slow
async def test_calls_at_once_do_not_wait_for_each_other() -> None:
    """Each of twenty is answered when all twenty are there."""
    async with there() as url, tools_of(at(url)) as (registry, _):
        calls = [run(registry, "web__meet", '{"count":20}') for _ in range(20)]
        assert {one.content for one in await asyncio.gather(*calls)} == {"met"}


async def test_a_server_is_told_when_a_call_has_taken_too_long() -> None:
    """It stops; the call has its code."""
    async with there() as url, tools_of(at(url, timeout=0.02)) as (registry, _):
        assert await run(registry, "web__slow") == ToolResult(error="tool_timeout")
        async with asyncio.timeout(PATIENCE_S), tools_of(at(url)) as (patient, _):
            while await run(patient, "web__told") != ToolResult("slow "):
                pass


@pytest.mark.slow
async def test_what_a_server_says_of_its_tools_is_known() -> None:
    """Which only read, and that there is one more."""
    async with there() as url, tools_of(at(url)) as (registry, connection):
        assert registry.read_only("web__echo")
        assert not registry.read_only("web__write")
        await run(registry, "web__grow", '{"name":"more"}')
        await until(connection, lambda: "web__more" in names(connection))
        assert await run(registry, "web__more") == ToolResult("more")


@pytest.mark.slow
async def test_a_server_that_has_gone_offers_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The next call finds out; the token is in no line."""
    caplog.set_level(logging.DEBUG, "effects")
    gone = asyncio.Event()

    async def serving(url: asyncio.Future[str]) -> None:
        async with there() as here:
            url.set_result(here)
            await gone.wait()

    where = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serving(where))
    async with tools_of(at(await where)) as (registry, connection):
        gone.set()
        await task
        assert (await run(registry, "web__echo", '{"text":"a"}')).error == "tool_failed"
        await until(connection, lambda: not names(connection))
        assert await registry.list("tools") == ()
        # Its tools are withdrawn first; then the connection is closed, which takes its time.
        await until_logged(lambda: "MCP server 'web' is away" in caplog.text)
    assert "sesame" not in caplog.text


async def test_who_is_refused_is_told_in_plain_words(unused_port: int) -> None:
    """A wrong token, and no server: no secret and no word of the server's."""
    async with there() as url:
        assert await why_not(at(url)) == "it can"
        assert await why_not(at(url, "wrong")) == "answered with error -32603"
    assert await why_not(at(f"http://127.0.0.1:{unused_port}/mcp")) == "connection refused"
