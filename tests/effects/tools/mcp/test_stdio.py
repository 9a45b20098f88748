"""A real server as a child process: one per test, since each is a Python that starts."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from contract.model import ToolResult
from effects.tools.mcp import McpServer
from tests.effects.tools.mcp.connecting import names, run, tools_of, until, why_not
from tests.support import mcp_tools_server
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

SCRIPT = Path(mcp_tools_server.__file__)
CHILD = McpServer(
    "child",
    "child__",
    command=(sys.executable, str(SCRIPT)),
    variables={"GIVEN": "in words"},
    timeout=PATIENCE_S,
)


async def test_a_program_is_started_spoken_to_and_ended(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees the variables named and no others, the log hears it, and it leaves nothing."""
    monkeypatch.setenv("NOT_GIVEN", "hush")
    caplog.set_level(logging.INFO)
    async with tools_of(CHILD) as (registry, connection):
        assert await run(registry, "child__echo", '{"text":"家"}') == ToolResult("家")
        slow = asyncio.create_task(run(registry, "child__slow"))
        results = await asyncio.gather(
            run(registry, "child__meet", '{"count":2}'),
            run(registry, "child__meet", '{"count":2}'),
            run(registry, "child__variable", '{"name":"GIVEN"}'),
            run(registry, "child__variable", '{"name":"NOT_GIVEN"}'),
            run(registry, "child__complain", '{"text":"something is wrong"}'),
        )
        assert [one.error or one.content for one in results] == [
            "met",
            "met",
            "in words",
            "not set",
            "",
        ]
        slow.cancel()
        with suppress(asyncio.CancelledError):
            await slow
        assert await run(registry, "child__told") == ToolResult("slow ")
        assert "MCP server 'child': something is wrong" in caplog.text
        await run(registry, "child__grow", '{"name":"more"}')
        await until(connection, lambda: "child__more" in names(connection))
        pid = int((await run(registry, "child__pid")).content)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_program_that_crashes_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    """Its tools are withdrawn at once, calls fail meanwhile, and none is made twice."""
    async with tools_of(CHILD) as (registry, connection):
        first = await run(registry, "child__pid")
        crashed = await run(registry, "child__crash")
        assert crashed == ToolResult(error="tool_failed")
        await until(connection, lambda: not names(connection))
        assert (await run(registry, "child__echo", '{"text":"a"}')).error == "tool_failed"
        await until(connection, lambda: bool(names(connection)))
        second = await run(registry, "child__pid")
        assert second.ok
        assert first != second
    assert "MCP server 'child' is away: the connection ended; again in 1 s" in caplog.text


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("no-such-program-here",), "no such command"),
        ((str(SCRIPT.parent),), "the command may not be run"),
        ((sys.executable, "-c", "print('no JSON', flush=True)"), "the connection ended"),
    ],
    ids=["missing", "a folder", "no server"],
)
async def test_what_is_no_server_is_told_in_plain_words(command: tuple[str, ...], why: str) -> None:
    """Not with an exception's."""
    assert await why_not(McpServer("odd", command=command)) == why
