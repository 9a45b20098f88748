"""Connections of tests: to a server in this process, to a fake, and waiting for their tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

from mcp import MCPError
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    METHOD_NOT_FOUND,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    ServerCapabilities,
    TextContent,
)
from mcp_types import Tool as MCPTool
from pydantic import BaseModel

from contract.model import ToolCall, ToolResult
from effects.tools import Tool, ToolRegistry
from effects.tools.mcp import (
    ListedTool,
    McpConnection,
    McpServer,
    McpSession,
    describe_error,
    open_session,
)
from effects.tools.mcp.client import ReadRequest, connect_session
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from mcp.server import MCPServer

    Opened = Callable[[McpServer, Callable[[], None]], AbstractAsyncContextManager[McpSession]]

Mode = Literal["auto", "legacy"]


def in_process(server: MCPServer, mode: Mode = "legacy") -> Opened:
    """Connect to a server of this process: `legacy` by messages, as over a pipe."""
    return lambda _, look: connect_session(server, look, mode)


def names(connection: McpConnection) -> list[str]:
    """Return the names of the tools that are offered now."""
    return [one.spec.name for one in connection.offered()]


async def until(connection: McpConnection, ready: Callable[[], bool]) -> None:
    """Wait until changes of a connection have brought something about."""
    async with asyncio.timeout(PATIENCE_S):
        while not ready():
            await connection.changed()


@asynccontextmanager
async def tools_of(
    server: McpServer,
    by: Opened | None = None,
    built_in: Iterable[Tool] = (),
    *,
    there: bool = True,
) -> AsyncIterator[tuple[ToolRegistry, McpConnection]]:
    """Return a registry with the tools of a server, once they are `there`."""
    connection = McpConnection(server, by) if by else McpConnection(server)
    registry = ToolRegistry(built_in, sources=[connection])
    connection.start()
    try:
        if there:
            await until(connection, lambda: bool(names(connection)))
        yield registry, connection
    finally:
        await registry.aclose()
        await connection.aclose()


async def run(registry: ToolRegistry, name: str, arguments: str = "{}") -> ToolResult:
    """Call a tool."""
    return await registry.run("tools", ToolCall("call_1", name, arguments))


async def why_not(server: McpServer) -> str:
    """Describe why a server cannot be used."""
    try:
        async with open_session(server, lambda: None) as session:
            await session.list()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        return describe_error(error)
    return "it can"


def listed(name: str, **properties: Any) -> ListedTool:
    """Make a tool as a server lists it."""
    return ListedTool(name, f"{name}.", {"type": "object", "properties": properties})


class FakeServer:
    """A server that can be taken away, be slow to answer, and change its tools."""

    def __init__(self, *tools: ListedTool) -> None:
        self.tools = tools
        self.opened: list[float] = []
        self.away: BaseException | None = None
        self.hangs = False
        self.uncancels = False
        self.calls: list[str] = []
        self.look: Callable[[], None] = lambda: None

    @asynccontextmanager
    async def __call__(self, _: McpServer, look: Callable[[], None]) -> AsyncIterator[FakeServer]:
        """Connect."""
        self.opened.append(asyncio.get_running_loop().time())
        self.look = look
        await self._there()
        try:
            yield self
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.uncancels and task is not None:
                task.uncancel()
            raise

    async def list(self) -> tuple[ListedTool, ...]:
        """List the tools."""
        await self._there()
        return self.tools

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool."""
        await self._there()
        self.calls.append(name)
        return f"{name} {arguments}"

    async def list_page(self, cursor: str | None) -> ListToolsResult:
        """List the tools as one page."""
        assert cursor is None
        return ListToolsResult(
            tools=[
                MCPTool(name=one.name, input_schema=dict(one.schema)) for one in await self.list()
            ]
        )

    capabilities = ServerCapabilities()
    instructions: str | None = None

    async def pass_call(self, params: CallToolRequestParams, report: ProgressFnT) -> CallToolResult:
        """Call a tool, which reports once."""
        await report(1.0, 1.0, params.name)
        text = await self.call(params.name, params.arguments or {})
        return CallToolResult(content=[TextContent(text=text)])

    async def pass_read(self, request: ReadRequest, report: ProgressFnT) -> BaseModel:
        """Refuse: it has nothing but tools."""
        raise MCPError(METHOD_NOT_FOUND, str(request.method), report)

    def drop(self, state: str | None) -> None:
        """Ignore it: nothing asks back."""

    async def _there(self) -> None:
        if self.hangs:
            await asyncio.sleep(3_600.0)
        if self.away:
            raise self.away
