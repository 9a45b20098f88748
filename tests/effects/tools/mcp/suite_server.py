"""The tools of the shared suite, on an MCP server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from effects.tools.mcp import McpServer
from tests.effects.tools.mcp.connecting import in_process, tools_of

if TYPE_CHECKING:
    from effects.tools import ToolRegistry

READS = ToolAnnotations(read_only_hint=True)


def suite_server() -> MCPServer:
    """Make the server."""
    server = MCPServer("suite", log_level="CRITICAL")

    @server.tool(annotations=READS)
    async def greet() -> str:
        """Greet."""
        return "hello stranger"

    @server.tool()
    async def book() -> str:
        """Book a table."""
        return "booked"

    @server.tool(annotations=READS)
    async def fail() -> str:
        """Raise."""
        secret = "secret of the user"  # must not leak
        raise ToolError(secret)

    @server.tool(annotations=READS)
    async def slow() -> str:
        """Take an hour."""
        await asyncio.sleep(3_600.0)
        return "done"

    @server.tool(annotations=READS, structured_output=False)
    async def draw(points: list[dict[str, Any]]) -> str:
        """Answer with a structure."""
        return f'{{"n":{len(points)},"label":"{points[0]["label"]}"}}'

    return server


@asynccontextmanager
async def suite_tools() -> AsyncIterator[ToolRegistry]:
    """Return a registry of the server's tools, under their own names."""
    opened = in_process(suite_server())
    async with tools_of(McpServer("suite", timeout=5.0), opened) as (registry, _):
        yield registry
