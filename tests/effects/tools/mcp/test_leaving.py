"""A client that leaves: what an MCP tool only reads dies with it, what it writes is finished."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from contract.model import ToolCall, ToolResult
from effects.tape import Exchange, TapeSession
from effects.testing import World
from effects.tools.mcp import McpServer
from tests.effects.tape.calls import turns
from tests.effects.tools.mcp.connecting import Mode, in_process, run, tools_of
from tests.effects.tools.mcp.tools_server import tools_server

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_call_that_only_reads_dies_and_a_write_goes_on(mode: Mode) -> None:
    """At once, and the server is told; the write is on the tape with its result."""
    server = McpServer("s", timeout=30.0)
    async with tools_of(server, in_process(tools_server(), mode)) as (registry, _):
        exchange = Exchange(replace(World().live(), tools=registry))
        tools = TapeSession(exchange, "x-1").effects().tools
        write = ToolCall("b", "write", '{"text":"paid","seconds":5}')
        readers = [
            asyncio.create_task(tools.run("tool", call))
            for call in (ToolCall("a", "slow", "{}"), write)
        ]
        await turns(50)
        left = asyncio.get_running_loop().time()
        await exchange.cancel_reads()
        assert asyncio.get_running_loop().time() == left
        await exchange.close()
        ends = {entry.end: entry.items for entry in exchange.tape.entries}
        assert ends.keys() == {"cut", "complete"}
        (written,) = ends["complete"]
        assert written.content == "written"
        assert await run(registry, "told") == ToolResult("slow paid")
        await asyncio.gather(*readers, return_exceptions=True)
