"""Both protocols of the SDK: changes are told by message, or to who listens."""

from __future__ import annotations

import pytest

from contract.model import ToolResult
from effects.tools.mcp import McpServer
from tests.effects.tools.mcp.connecting import Mode, in_process, names, run, tools_of, until
from tests.effects.tools.mcp.tools_server import tools_server

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_tool_that_is_added_is_offered(mode: Mode) -> None:
    """And can be called, without a new connection."""
    server = McpServer("s")
    async with tools_of(server, in_process(tools_server(), mode)) as (registry, connection):
        assert (await run(registry, "more")).error == "unknown_tool"
        assert await run(registry, "grow", '{"name":"more"}') == ToolResult("grown")
        await until(connection, lambda: "more" in names(connection))
        assert await run(registry, "more") == ToolResult("more")


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_arguments_the_server_will_not_have_are_bad(mode: Mode) -> None:
    """Those that break the schema never reach it."""
    server = McpServer("s")
    async with tools_of(server, in_process(tools_server(), mode)) as (registry, _):
        for arguments in ('{"text":1}', "{}", "[]", "{"):
            assert await run(registry, "echo", arguments) == ToolResult(error="bad_arguments")
        assert await run(registry, "echo", '{"text":"a"}') == ToolResult("a")
