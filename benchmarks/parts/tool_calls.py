"""Measures a tool call through the gateway beside a bare pass-through; rows go to stdout.

    python -m benchmarks.parts.tool_calls CALLS

Both are servers and clients of the official SDK in front of one tool server, on loopback and in
this process. The gateway's call is of an open exchange: asked of the tape, executed, recorded.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median
from typing import Any, Final

import httpx2
import msgspec
import uvloop
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import MCPServer, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import (
    StreamableHTTPASGIApp,
    StreamableHTTPSessionManager,
)
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
)

from benchmarks.parts.gateways import gateway, serving
from benchmarks.rows import BenchRow, at_most, reported

MOST_RATIO: Final = 1.3
ROUNDS: Final = 15
_TOOLS: Final = """tool_servers = ["shop"]

[tools.mcp.shop]
url = "{shop}/mcp"
"""


def shop() -> MCPServer:
    """Make a tool server that does as little as one can."""
    server = MCPServer("shop", log_level="CRITICAL")

    @server.tool(structured_output=False)
    async def order(item: str) -> str:
        """Order an item."""
        return f"{item} is ordered"

    return server


@asynccontextmanager
async def pass_through(url: str) -> AsyncIterator[str]:
    """Serve what hands each call on to the tool server, and its answer back."""
    async with AsyncExitStack() as stack:
        behind = await stack.enter_async_context(client_at(f"{url}/mcp", {}))

        async def list_tools(
            _: ServerRequestContext[Any, Any], __: PaginatedRequestParams | None
        ) -> ListToolsResult:
            return await behind.list_tools()

        async def call_tool(
            _: ServerRequestContext[Any, Any], params: CallToolRequestParams
        ) -> CallToolResult:
            return await behind.call_tool(params.name, params.arguments)

        # Without the schemas the SDK lists the tools before every call.
        server: Server[Any] = Server(
            "bare",
            on_list_tools=list_tools,
            on_call_tool=call_tool,
            get_tool_input_schema=lambda _: None,
        )
        manager = StreamableHTTPSessionManager(server, stateless=True)
        await stack.enter_async_context(manager.run())
        yield await stack.enter_async_context(serving(StreamableHTTPASGIApp(manager)))


@asynccontextmanager
async def client_at(url: str, headers: Mapping[str, str]) -> AsyncIterator[Client]:
    """Open the SDK's client."""
    async with (
        httpx2.AsyncClient(headers=dict(headers), trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), cache=None) as client,
    ):
        await client.list_tools()
        yield client


async def milliseconds(one: Client, other: Client, calls: range) -> tuple[float, float]:
    """Return the median time of a call of each, made by turns."""
    took: tuple[list[float], list[float]] = [], []
    for number in calls:
        for client, times in zip((one, other), took, strict=True):
            began = time.perf_counter()
            await client.call_tool("order", {"item": f"tea {number}"})
            times.append((time.perf_counter() - began) * 1_000)
    return median(took[0]), median(took[1])


async def measure(calls: int) -> list[BenchRow]:
    """Measure both, in turns."""
    app = shop()
    bare: list[float] = []
    ours: list[float] = []
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        served = app.streamable_http_app()
        await enter(app.session_manager.run())
        url = await enter(serving(served))
        plain = await enter(client_at(await enter(pass_through(url)), {}))
        own, opened = await enter(gateway(_TOOLS.format(shop=url)))
        for number in range(ROUNDS + 1):
            gc.collect()
            numbers = range(number * calls, (number + 1) * calls)
            # One exchange a round: silent for longer, its stack is given up.
            async with opened() as headers, client_at(f"{own}/mcp/shop", headers) as through:
                found = await milliseconds(plain, through, numbers)
            if number:  # the first warms up
                bare.append(found[0])
                ours.append(found[1])
    how = f"median of {ROUNDS} rounds of {calls} calls each, made by turns"
    ratios = [one / other for one, other in zip(ours, bare, strict=True)]
    named = "a call of a tool in an exchange, over one through a bare pass-through of the same SDK"
    return [
        at_most("tool_call.ratio", median(ratios), "", MOST_RATIO, f"{named}; {how}"),
        reported("tool_call.gateway", median(ours), "ms", f"through the gateway; {how}"),
        reported("tool_call.pass_through", median(bare), "ms", f"through the bare one; {how}"),
    ]


def main() -> None:
    """Measure and print."""
    rows = uvloop.run(measure(int(sys.argv[1])))
    sys.stdout.buffer.write(msgspec.json.encode(rows))


if __name__ == "__main__":
    main()
