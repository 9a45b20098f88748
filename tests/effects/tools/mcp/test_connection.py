"""A server that comes and goes: what is offered meanwhile, and when it is tried again."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from contract.model import ToolCall, ToolResult
from effects.local import ManualClock
from effects.tape import Exchange, TapeSession
from effects.testing import World
from effects.tools import builtin_tools
from effects.tools.mcp import McpConnection, McpServer
from effects.tools.mcp.connection import CHECK_SECONDS, reconnect_wait
from tests.effects.tools.mcp.connecting import (
    FakeServer,
    Mode,
    in_process,
    listed,
    names,
    run,
    tools_of,
    until,
)
from tests.support.mcp_tools_server import tools_server
from tests.support.tape_calls import turns

pytestmark = pytest.mark.virtual

SERVER = McpServer("near", "near__", connect=5.0)
GONE = ConnectionRefusedError()


def test_pauses_grow_to_a_minute() -> None:
    """A server that is away is not asked all the time, and not forgotten."""
    waits = [reconnect_wait(number) for number in (1, 2, 3, 6, 7, 5_000)]
    assert waits == [1.0, 2.0, 4.0, 32.0, 60.0, 60.0]


async def test_tools_are_offered_behind_the_built_in_ones() -> None:
    """With the prefix, and called by the server's own name."""
    fake = FakeServer(listed("look", a={"type": "integer"}))
    async with tools_of(SERVER, fake, builtin_tools(ManualClock())) as (registry, _):
        offered = [one.name for one in await registry.list("tools")]
        assert offered == ["calculate", "current_time", "convert_units", "near__look"]
        assert await run(registry, "near__look", '{"a":1}') == ToolResult("look {'a': 1}")
        assert (await run(registry, "near__look", '{"a":"1"}')).error == "bad_arguments"
        assert (await run(registry, "near__nothing")).error == "unknown_tool"
        assert fake.calls == ["look"]


async def test_a_tool_with_a_built_in_one_s_name_is_not_the_one_that_is_meant() -> None:
    """The first is, whatever comes and goes."""
    fake = FakeServer(listed("calculate"), listed("b"))
    async with tools_of(McpServer("near"), fake, builtin_tools(ManualClock())) as (registry, _):
        assert len(await registry.list("tools")) == 4
        assert await run(registry, "calculate", '{"expression":"1+1"}') == ToolResult("2")
        assert registry.read_only("calculate")


async def test_nobody_waits_for_a_server_that_does_not_answer() -> None:
    """It has its time, then it is away; its tools fail, and may write for all we know."""
    fake = FakeServer(listed("look"))
    fake.hangs = True
    async with tools_of(SERVER, fake, there=False) as (registry, _):
        assert await registry.list("tools") == ()
        assert (await run(registry, "near__look")).error == "tool_failed"
        assert not registry.read_only("near__look")
        assert (await run(registry, "far__look")).error == "unknown_tool"
        assert asyncio.get_running_loop().time() == 0.0
        await asyncio.sleep(5.0 + 1.0 + 5.0 + 2.0 + 0.5)
        assert fake.opened == [0.0, 6.0, 13.0]


async def test_a_server_that_is_away_is_tried_again_and_again() -> None:
    """After 1, 2, 4 seconds, and 1 again once it was back; then its tools are offered."""
    fake = FakeServer(listed("look"))
    fake.away = GONE
    async with tools_of(SERVER, fake, there=False) as (_, connection):
        await asyncio.sleep(7.5)
        assert fake.opened == [0.0, 1.0, 3.0, 7.0]
        fake.away = None
        await until(connection, lambda: names(connection) == ["near__look"])
        assert asyncio.get_running_loop().time() == 15.0
        fake.away = GONE
        fake.look()
        await until(connection, lambda: not names(connection))
        gone = asyncio.get_running_loop().time()
        fake.away = None
        await until(connection, lambda: bool(names(connection)))
        assert asyncio.get_running_loop().time() == gone + 1.0


async def test_a_cancellation_of_the_librarys_own_is_a_failure_like_any_other() -> None:
    """The connection was not asked to close."""
    fake = FakeServer(listed("look"))
    fake.away = asyncio.CancelledError()
    async with tools_of(SERVER, fake, there=False) as (_, connection):
        await asyncio.sleep(0.5)
        fake.away = None
        await until(connection, lambda: names(connection) == ["near__look"])
        assert fake.opened == [0.0, 1.0]


async def test_a_server_that_dies_in_silence_is_missed() -> None:
    """It is asked for its tools now and then; until it is back they fail, and are not offered."""
    fake = FakeServer(listed("look"))
    async with tools_of(SERVER, fake) as (registry, connection):
        fake.away = GONE
        await until(connection, lambda: not names(connection))
        assert asyncio.get_running_loop().time() == pytest.approx(CHECK_SECONDS + 0.2)
        assert await registry.list("tools") == ()
        assert (await run(registry, "near__look")).error == "tool_failed"


async def test_a_server_that_hangs_is_away() -> None:
    """A connection that stands but says nothing is no better than none."""
    fake = FakeServer(listed("look"))
    async with tools_of(SERVER, fake) as (_, connection):
        fake.hangs = True
        fake.look()
        await until(connection, lambda: not names(connection))
        assert asyncio.get_running_loop().time() == pytest.approx(5.2)


async def test_tools_change_while_a_server_runs() -> None:
    """New ones are offered, old ones unknown, and a server that tells it often is asked once."""
    fake = FakeServer(listed("look"))
    async with tools_of(SERVER, fake) as (registry, connection):
        fake.tools = (listed("see"),)
        for _ in range(100):
            fake.look()
        await until(connection, lambda: names(connection) == ["near__see"])
        assert asyncio.get_running_loop().time() == pytest.approx(0.2)
        assert (await run(registry, "near__look")).error == "unknown_tool"
        assert len(fake.opened) == 1


async def test_what_is_wrong_is_logged_once_and_without_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not with every look, and never an exception's words."""
    fake = FakeServer(listed("look"))
    server = McpServer("near", "near__", deny=frozenset(["raed"]), variables={"KEY": "hush"})
    with caplog.at_level(logging.INFO):
        async with tools_of(server, fake) as (_, connection):
            fake.look()
            await connection.changed()
            fake.away = RuntimeError("hush hush")
            fake.look()
            await until(connection, lambda: not names(connection))
    assert caplog.text.count("deny names 'raed'") == 1
    assert "MCP server 'near' is away: RuntimeError; again in 1 s" in caplog.text
    assert "hush" not in caplog.text + repr(server)


async def test_closing_ends_everything_at_any_time() -> None:
    """Before it began, while it connects, while it is away, and twice."""
    fake = FakeServer(listed("look"))
    connection = McpConnection(SERVER, fake)
    await connection.aclose()
    fake.hangs = True
    connection.start()
    await asyncio.sleep(1.0)
    await connection.aclose()
    await connection.aclose()
    assert asyncio.get_running_loop().time() == 1.0


async def test_closing_is_no_failure_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    """Also where the SDK takes the cancellation for one of its own scopes'."""
    fake = FakeServer(listed("look"))
    fake.uncancels = True
    connection = McpConnection(SERVER, fake)
    connection.start()
    await until(connection, lambda: connection.session is not None)
    await connection.aclose()
    assert connection.session is None
    assert "is away" not in caplog.text


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
