"""The official SDK: a server's transport, its handshake, its tools."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

import anyio
import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import (
    INVALID_PARAMS,
    Implementation,
    ToolListChangedNotification,
)
from mcp_types import Tool as McpTool
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from effects.tools.mcp.answer import answer_text
from effects.tools.mcp.bounded import BoundedTransport
from effects.tools.mcp.offering import Listed
from effects.tools.mcp.session import ToolFailed
from effects.tools.mcp.stderr import stderr_of
from effects.tools.mcp.watched import watched
from effects.tools.tool import BadArguments

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mcp.client import Transport
    from mcp.server import MCPServer

    from effects.tools.mcp.server import McpServer

    Look = Callable[[], None]

SILENCE = 300.0
"""Seconds an open stream may be silent before it is asked for again."""
MOST_PAGES = 20
RELISTEN = 1.0
"""Seconds from the end of a stream of changes until the next is asked for."""


@asynccontextmanager
async def opened(server: McpServer, look: Look) -> AsyncIterator[SdkSession]:
    """Connect to a server; enter and leave in one task.

    `look` is called whenever its tools may have changed, or it may have gone.
    """
    async with AsyncExitStack() as stack:
        transport = await _transport(server, stack)
        yield await stack.enter_async_context(connected(watched(transport, look), look))


@asynccontextmanager
async def connected(
    target: Transport | MCPServer, look: Look, mode: Literal["auto", "legacy"] = "auto"
) -> AsyncIterator[SdkSession]:
    """Shake hands over a transport, or with a server in this process."""

    async def heard(message: object) -> None:
        if isinstance(message, ToolListChangedNotification | Exception):
            look()

    client = Client(
        target,
        mode=mode,
        message_handler=heard,
        client_info=Implementation(name="cutover", version="0"),
        cache=None,
    )
    async with client, anyio.create_task_group() as group:
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            group.start_soon(_listen, client, look)
        try:
            yield SdkSession(client, look)
        finally:
            group.cancel_scope.cancel()


class SdkSession:
    """A session of the SDK's client."""

    def __init__(self, client: Client, look: Look) -> None:
        self._client = client
        self._look = look

    async def list(self) -> tuple[Listed, ...]:
        """Ask for the tools, page by page."""
        found: list[Listed] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            found += map(_listed, page.tools)
            cursor = page.next_cursor
            if cursor is None:
                break
        return tuple(found)

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool; an error of the protocol may mean that the server has gone."""
        try:
            result = await self._client.call_tool(name, arguments)
        except MCPError as error:
            if error.code == INVALID_PARAMS:
                raise BadArguments(argument="*", reason="not as the server has it") from error
            self._look()
            raise
        if result.is_error:
            raise ToolFailed(name)
        return answer_text(result)


async def _listen(client: Client, look: Look) -> None:
    """Hear of changes where a server tells them to who asks; others are asked now and then."""
    while True:
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    look()
        except SubscriptionLost:
            pass
        except (MCPError, TimeoutError):
            return
        look()
        await anyio.sleep(RELISTEN)


def _listed(tool: McpTool) -> Listed:
    hints = tool.annotations
    hinted = bool(hints and hints.read_only_hint)
    return Listed(tool.name, tool.description or tool.title or "", tool.input_schema, hinted)


async def _transport(server: McpServer, stack: AsyncExitStack) -> Transport:
    if server.url:
        return streamable_http_client(
            server.url, http_client=await stack.enter_async_context(_http(server))
        )
    command, *arguments = server.command
    started = StdioServerParameters(
        command=command,
        args=arguments,
        env=dict(server.variables),
        encoding_error_handler="replace",
    )
    file = await stack.enter_async_context(stderr_of(server.name))
    return stdio_client(started, errlog=file)


def _http(server: McpServer) -> httpx2.AsyncClient:
    token = server.token.reveal()
    # Not compressed: what is bounded is what is read.
    headers = {"accept-encoding": "identity"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    limits = httpx2.Timeout(server.connect, read=max(SILENCE, server.timeout))
    return httpx2.AsyncClient(
        headers=headers, timeout=limits, transport=BoundedTransport(), trust_env=False
    )
