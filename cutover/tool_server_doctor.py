"""Examining a server of tools: whether it answers, what it offers, what is wrong."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from contract.errors import CutoverError
from cutover.finding import Finding
from cutover.wiring.tools import mcp, tool_server

if TYPE_CHECKING:
    from collections.abc import Mapping

    from effects.tools.mcp import McpServer, Offering
    from router.config import McpServerSettings as Section


async def examined(name: str, section: Section, environ: Mapping[str, str]) -> Finding:
    """Connect to a server, starting it if need be, and look at its tools; none is called."""
    part = f"tools.mcp.{name}"
    place = section.command[0] if section.command else section.url.partition("?")[0]
    try:
        server = tool_server(name, section, environ)
    except CutoverError as error:
        return Finding(part, good=False, said=str(error))
    try:
        found = await _offering(server)
    except Exception as error:  # noqa: BLE001 - whatever it is, the server cannot be used
        return Finding(part, good=False, said=f"{place}: {mcp().trouble(error)}")
    return Finding(part, good=not found.faults, said=f"{place}: {_told(found)}")


async def _offering(server: McpServer) -> Offering:
    library = mcp()
    async with asyncio.timeout(server.connect), library.opened(server, lambda: None) as session:
        found: Offering = library.offering(server, await session.list())
    return found


def _told(found: Offering) -> str:
    reading = [one.spec.name for one in found.offers if one.read_only]
    writing = [one.spec.name for one in found.offers if not one.read_only]
    told = [
        f"read-only {', '.join(reading) or 'none'}",
        f"not read-only {', '.join(writing) or 'none'}",
        *found.faults,
    ]
    return f"{len(found.offers)} tools; {'; '.join(told)}"
