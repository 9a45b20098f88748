"""A server's connection: kept by one task, made again when it ends, and the tools it gives."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from contract.model import ToolSpec
from effects.tools.mcp.offering import Offer, Offering, offering
from effects.tools.mcp.sdk import opened as opened_by_sdk
from effects.tools.mcp.session import ServerAway
from effects.tools.mcp.trouble import trouble
from effects.tools.tool import BadArguments, Json, Tool, ToolContext, parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from effects.tools.mcp.server import McpServer
    from effects.tools.mcp.session import Session

    Opened = Callable[[McpServer, Callable[[], None]], AbstractAsyncContextManager[Session]]

log = logging.getLogger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
CHECK_SECONDS = 30.0
"""How often a silent server is asked for its tools, to see that it is there."""
APART_SECONDS = 0.2
"""What lies between two looks at least: some servers tell of changes all the time."""

_READ = msgspec.json.Decoder(dict[str, Any]).decode


def pause(failures: int) -> float:
    """Seconds until a server is tried again: 1, 2, 4 and so on to a minute."""
    return min(FIRST_PAUSE * 2.0 ** min(failures - 1, 10), LONGEST_PAUSE)


def _told_to_end() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class McpConnection:
    """The tools of one server while it is there; a source of the registry.

    One task opens and closes its connections, as the SDK asks; calls are made in their callers'.
    """

    def __init__(self, server: McpServer, opened: Opened = opened_by_sdk) -> None:
        self._server = server
        self._opened = opened
        self._look = asyncio.Event()
        self._changed = asyncio.Event()
        self._session: Session | None = None
        self._offering = Offering(())
        self._tools: dict[str, Tool] = {}
        self._failures = 0
        self._closing = False
        self._owner: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to connect; nobody waits for it."""
        self._owner = asyncio.create_task(self._own(), name=f"mcp {self._server.name}")

    def offered(self) -> Iterable[Tool]:
        """Give the tools that can be called now."""
        return () if self._session is None else self._tools.values()

    def find(self, name: str) -> Tool | None:
        """Give a tool of this server, also one that is away with it."""
        one = self._tools.get(name)
        if one is None and self._session is None and self._is_ours(name):
            return self._tool(ToolSpec(name, "", parameters({})), self._absent, read_only=False)
        return one

    async def changed(self) -> None:
        """Wait until the server has come, gone, or told its tools again."""
        await self._changed.wait()

    async def aclose(self) -> None:
        """End the connection, and the server where it was started here; idempotent."""
        self._closing = True
        owner = self._owner
        # Again where the cancellation met one of the SDK's own, which swallows both.
        while owner is not None and not owner.done():
            owner.cancel()
            await asyncio.wait({owner}, timeout=LONGEST_PAUSE)

    def _is_ours(self, name: str) -> bool:
        return bool(self._server.prefix) and name.startswith(self._server.prefix)

    async def _own(self) -> None:
        while not self._closing:
            try:
                await self._connect()
            except (Exception, asyncio.CancelledError) as error:
                if _told_to_end():  # and no cancellation of the SDK's own
                    raise
                self._failures += 1
                seconds = pause(self._failures)
                why = trouble(error)
                log.warning(
                    "MCP server %r is away: %s; again in %g s", self._server.name, why, seconds
                )
                await asyncio.sleep(seconds)

    async def _connect(self) -> None:
        """Stay connected; returns never, raises when the server has gone."""
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self._server.connect):
                entering = self._opened(self._server, self._look.set)
                session = await stack.enter_async_context(entering)
                self._take(await session.list())
            # Withdrawn before the connection is closed, which takes its time.
            stack.callback(self._withdraw)
            self._session = session
            self._failures = 0
            self._tell()
            log.info("MCP server %r offers %d tools", self._server.name, len(self._tools))
            while True:
                await self._doubt()
                async with asyncio.timeout(self._server.connect):
                    self._take(await session.list())
                self._tell()

    async def _doubt(self) -> None:
        """Wait until there is a reason to look, or it is time to."""
        await asyncio.sleep(APART_SECONDS)
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await self._look.wait()
        except TimeoutError:
            return
        finally:
            self._look.clear()

    def _withdraw(self) -> None:
        self._session = None
        self._tell()

    def _tell(self) -> None:
        told, self._changed = self._changed, asyncio.Event()
        told.set()

    def _take(self, listed: Iterable[Any]) -> None:
        known, self._offering = self._offering, offering(self._server, listed)
        for fault in self._offering.faults:
            if fault not in known.faults:
                log.warning("MCP server %r: %s", self._server.name, fault)
        self._tools = {
            one.spec.name: self._tool(one.spec, partial(self._call, one), read_only=one.read_only)
            for one in self._offering.offers
        }

    def _tool(self, spec: ToolSpec, call: Callable[..., object], *, read_only: bool) -> Tool:
        return Tool(spec, _READ, call, read_only, self._server.timeout)

    async def _call(self, offer: Offer, arguments: dict[str, Json], _: ToolContext) -> str:
        session = self._session
        if session is None:
            raise ServerAway(self._server.name)
        if not offer.schema.fits(arguments):
            raise BadArguments(argument="*", reason="not as the schema has it")
        return await session.call(offer.name, arguments)

    async def _absent(self, _: dict[str, Json], __: ToolContext) -> str:
        raise ServerAway(self._server.name)
