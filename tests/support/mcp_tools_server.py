"""A real MCP server for tests, made with the SDK's own server class.

As a script it serves on its standard input and output, with one tool more: `crash`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ResourceLink, TextContent, ToolAnnotations

READS = ToolAnnotations(read_only_hint=True)


def tools_server() -> MCPServer:
    """Make a server with a tool for everything that may happen."""
    server = MCPServer("tools", log_level="CRITICAL")
    for add in (answering, recording, meeting, telling):
        add(server)
    return server


def answering(server: MCPServer) -> None:
    """Add tools that answer, each in its way."""

    @server.tool(annotations=READS)
    async def fail() -> str:
        """Fail."""
        secret = "secret of the user"  # must not leak
        raise ToolError(secret)

    @server.tool(annotations=READS)
    async def echo(text: str) -> str:
        """Repeat it."""
        return text

    @server.tool(annotations=READS)
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(annotations=READS)
    async def image() -> Image:
        """Draw."""
        return Image(data=b"12345", format="png")

    @server.tool(annotations=READS, structured_output=False)
    async def mixed() -> list[Any]:
        """Answer with several things."""
        link = ResourceLink(name="a file", uri="file:///a")
        return ["one", link, TextContent(text="two")]

    @server.tool(annotations=READS)
    async def structured() -> CallToolResult:
        """Answer without any text."""
        return CallToolResult(content=[], structured_content={"n": 1, "label": "家"})

    @server.tool(annotations=READS, structured_output=False)
    async def big(size: int = 200_000) -> str:
        """Answer with a lot."""
        return "x" * size


def recording(server: MCPServer) -> None:
    """Add tools that say what became of their calls."""
    cancelled: list[str] = []
    written: list[str] = []

    @server.tool(annotations=READS, structured_output=False)
    async def slow(seconds: float = 3_600.0) -> str:
        """Take an hour."""
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            cancelled.append("slow")
            raise
        return "done"

    @server.tool(structured_output=False)
    async def write(text: str, seconds: float = 0.0) -> str:
        """Write something down."""
        await asyncio.sleep(seconds)
        written.append(text)
        return "written"

    @server.tool(annotations=READS, structured_output=False)
    async def told() -> str:
        """Return what was cancelled and what was written."""
        return f"{','.join(cancelled)} {','.join(written)}"


def meeting(server: MCPServer) -> None:
    """Add a tool whose calls wait for each other."""
    there: list[asyncio.Event] = []

    @server.tool(annotations=READS, structured_output=False)
    async def meet(count: int) -> str:
        """Answer when so many are waiting."""
        there.append(mine := asyncio.Event())
        if len(there) == count:
            for one in there:
                one.set()
        await mine.wait()
        return "met"


def telling(server: MCPServer) -> None:
    """Add tools about the server itself."""

    @server.tool(annotations=READS, structured_output=False)
    async def variable(name: str) -> str:
        """Read a variable of the environment."""
        return os.environ.get(name, "not set")

    @server.tool(annotations=READS, structured_output=False)
    async def pid() -> str:
        """Return the number of its process."""
        return str(os.getpid())

    @server.tool(annotations=READS, structured_output=False)
    async def complain(text: str) -> str:
        """Write to the standard error."""
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
        return ""

    @server.tool(structured_output=False)
    async def grow(context: Context, name: str) -> str:
        """Offer one more tool, and tell so."""

        async def more() -> str:
            return name

        server.add_tool(more, name=name, description="More.")
        await context.notify_tools_changed()
        await context.session.send_tool_list_changed()
        return "grown"


def main() -> None:
    """Serve the process that started this one."""
    server = tools_server()

    @server.tool()
    async def crash() -> str:
        """End the process."""
        os._exit(3)

    server.run("stdio")


if __name__ == "__main__":
    main()
