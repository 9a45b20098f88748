"""Tool servers (MCP) from settings."""

from __future__ import annotations

import asyncio
import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from contract.errors import MissingExtra
from effects.model import Secret
from router.config.addresses import read_secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AsyncExitStack

    from effects.tools.mcp import McpConnection, McpServer
    from router.config.schema import McpServerSettings, ToolSettings

_LIBRARY = "effects.tools.mcp"
_EXTRA = "mcp"


def tool_servers(tools: ToolSettings, environ: Mapping[str, str]) -> Sequence[McpServer]:
    """Return the servers; raises `MissingExtra`, `ConfigRefused` for a variable that is not set."""
    return [tool_server(name, section, environ) for name, section in tools.mcp.items()]


def open_tool_servers(
    servers: Sequence[McpServer], stack: AsyncExitStack
) -> Sequence[McpConnection]:
    """Start connecting to every server without waiting; closed with `stack`."""
    connections: list[McpConnection] = [mcp().McpConnection(one) for one in servers]

    async def close() -> None:
        await asyncio.gather(*(one.aclose() for one in connections))

    stack.push_async_callback(close)
    for one in connections:
        one.start()
    return connections


def tool_server(name: str, section: McpServerSettings, environ: Mapping[str, str]) -> McpServer:
    """Return one server; raises `MissingExtra`, `ConfigRefused`."""
    server: McpServer = mcp().McpServer(
        name=name,
        prefix=section.prefix or "",
        command=section.command,
        variables={one: read_secret(one, environ).decode() for one in section.env},
        url=section.url,
        token=Secret(read_secret(section.token_env, environ).decode()),
        timeout=section.timeout_seconds,
        connect=section.connect_seconds,
        allow=frozenset(section.allow) or None,
        deny=frozenset(section.deny),
        read_only=_declared(section.read_only),
        idempotent=_declared(section.idempotent),
    )
    return server


Declared: TypeAlias = bool | tuple[str, ...] | str
"""Whether tools are read-only or idempotent: all or none, those named, or as the server hints."""


def _declared(value: Declared) -> bool | frozenset[str] | None:
    match value:
        case bool():
            return value
        case tuple(names):
            return frozenset(names)
        case _:
            return None


def mcp() -> Any:
    """Import the adapter, only where servers are configured: the SDK takes a second."""
    try:
        library = import_module(_LIBRARY)
    except ModuleNotFoundError as missing:
        raise MissingExtra(adapter="McpConnection", extra=_EXTRA) from missing
    # It logs messages it cannot parse, and these may hold what users wrote.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    return library
