"""An MCP server on standard input, as a program: each sale is a line of the file it is given."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations


def main() -> None:
    """Serve the process that started this one."""
    sales = Path(sys.argv[1])
    server = MCPServer("till", log_level="CRITICAL")

    def note(line: str) -> None:
        with sales.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    @server.tool(structured_output=False)
    async def sell(item: str, context: Context) -> str:
        """Sell an item, in two steps."""
        await context.report_progress(1, 2, "packed")
        note(f"sell {item}")
        return f"{item} is sold"

    @server.tool(structured_output=False)
    async def refuse() -> str:
        """Refuse."""
        note("refuse")
        why = "closed"
        raise ToolError(why)

    @server.tool(structured_output=False)
    async def crash() -> str:
        """End the process in the middle of a sale."""
        note("crash")
        os._exit(3)

    @server.tool(structured_output=False)
    async def slow() -> str:
        """Sell, and take longer than any test waits."""
        note("slow")
        await asyncio.sleep(3_600)
        return "there"

    @server.tool(structured_output=False)
    async def deliver() -> str:
        """Deliver, once a file says so; notes where it is cancelled."""
        note("deliver")
        try:
            while not sales.with_name("deliver").exists():  # noqa: ASYNC110 - another process's
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            note("cancelled")
            raise
        note("delivered")
        return "there"

    @server.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
    async def environment() -> str:
        """Name the variables that this process has."""
        return " ".join(sorted(os.environ))

    server.run("stdio")


if __name__ == "__main__":
    main()
