"""The connection to an MCP server: held by one task, opened again when it ends, and its tools."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any

import msgspec
from mcp_types import ServerCapabilities

from contract.model import ToolSpec
from effects.tools.mcp.client import McpSession, ServerAway, describe_error, open_session
from effects.tools.mcp.server import (
    ListedTool,
    McpServer,
    OfferedTool,
    Offering,
    is_allowed,
    is_idempotent,
    is_read_only,
    offer_tools,
)
from effects.tools.tool import BadArguments, Json, Tool, ToolContext, parameters

OpenSession = Callable[[McpServer, Callable[[], None]], AbstractAsyncContextManager[McpSession]]

log = logging.getLogger(__name__)

FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
CHECK_SECONDS = 30.0
"""How often the tools of a silent server are listed, to see that it is there."""
LEAST_INTERVAL = 0.2
"""The least time between two lists: some servers notify of changes all the time."""

_READ = msgspec.json.Decoder(dict[str, Any]).decode


def reconnect_wait(failures: int) -> float:
    """Return the seconds until a server is tried again: 1, 2, 4 and so on to a minute."""
    return min(FIRST_WAIT * 2.0 ** min(failures - 1, 10), LONGEST_WAIT)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class McpConnection:
    """The tools of one server while it is there; a source of the registry.

    One task opens and closes its connections, as the SDK asks; calls are made in their callers'.
    """

    def __init__(self, server: McpServer, open_session: OpenSession = open_session) -> None:
        self._server = server
        self._open_session = open_session
        self._check = asyncio.Event()
        self._changed = asyncio.Event()
        self._session: McpSession | None = None
        self._offering = Offering(())
        self._tools: dict[str, Tool] = {}
        self._listed: dict[str, ListedTool] = {}
        self._capabilities = ServerCapabilities()
        self._instructions: str | None = None
        self._failures = 0
        self._closing = False
        self._owner: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to connect; do not wait for it."""
        self._owner = asyncio.create_task(self._run(), name=f"mcp {self._server.name}")

    @property
    def name(self) -> str:
        """The server's name in the configuration."""
        return self._server.name

    @property
    def timeout(self) -> float:
        """The seconds a call may take."""
        return self._server.timeout

    @property
    def session(self) -> McpSession | None:
        """The open session; None while the server is away."""
        return self._session

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server can do, as it said last."""
        return self._capabilities

    @property
    def instructions(self) -> str | None:
        """What the server tells models of itself, as it said last."""
        return self._instructions

    def allows(self, name: str) -> bool:
        """Whether the configuration lets a tool through, by the server's own name for it."""
        return is_allowed(self._server, name)

    def is_read_only(self, name: str) -> bool:
        """Whether a tool changes nothing; of a tool that was never listed nothing is known."""
        listed = self._listed.get(name)
        return is_read_only(self._server, name, hinted=listed is not None and listed.hinted)

    def is_idempotent(self, name: str) -> bool:
        """Whether the same call may be made again where its outcome is not known."""
        listed = self._listed.get(name)
        return is_idempotent(self._server, name, hinted=listed is not None and listed.repeatable)

    @property
    def shadow_reads(self) -> bool:
        """Whether a shadow may call read-only tools that its tape does not have."""
        return self._server.shadow_reads

    def offered(self) -> Iterable[Tool]:
        """Return the tools that can be called now."""
        return () if self._session is None else self._tools.values()

    def find(self, name: str) -> Tool | None:
        """Return a tool of this server, also while the server is away."""
        one = self._tools.get(name)
        if one is None and self._session is None and self._is_ours(name):
            return self._tool(ToolSpec(name, "", parameters({})), self._absent)
        return one

    async def changed(self) -> None:
        """Wait until the server has come, gone, or listed its tools again."""
        await self._changed.wait()

    async def aclose(self) -> None:
        """End the connection, and the server where it was started here; idempotent."""
        self._closing = True
        owner = self._owner
        # Again where the cancellation met one of the SDK's own, which swallows both.
        while owner is not None and not owner.done():
            owner.cancel()
            await asyncio.wait({owner}, timeout=LONGEST_WAIT)

    def _is_ours(self, name: str) -> bool:
        return bool(self._server.prefix) and name.startswith(self._server.prefix)

    async def _run(self) -> None:
        while True:
            try:
                await self._connect()
            except (Exception, asyncio.CancelledError) as error:
                if _is_cancelled():  # and no cancellation of the SDK's own
                    raise
                if self._closing:  # the SDK may have taken the cancellation for its own
                    return
                self._failures += 1
                seconds = reconnect_wait(self._failures)
                why = describe_error(error)
                log.warning(
                    "MCP server %r is away: %s; again in %g s", self._server.name, why, seconds
                )
                await asyncio.sleep(seconds)

    async def _connect(self) -> None:
        """Stay connected; never returns, raises when the server has gone."""
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self._server.connect):
                entering = self._open_session(self._server, self._check.set)
                session = await stack.enter_async_context(entering)
                self._take(await session.list())
            # Withdrawn before the connection is closed, which takes its time.
            stack.callback(self._withdraw)
            self._session = session
            self._capabilities, self._instructions = session.capabilities, session.instructions
            self._failures = 0
            self._notify()
            log.info("MCP server %r offers %d tools", self._server.name, len(self._tools))
            while True:
                await self._wait_for_check()
                async with asyncio.timeout(self._server.connect):
                    self._take(await session.list())
                self._notify()

    async def _wait_for_check(self) -> None:
        """Wait until the tools may have changed, or it is time to check."""
        await asyncio.sleep(LEAST_INTERVAL)
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await self._check.wait()
        except TimeoutError:
            return
        finally:
            self._check.clear()

    def _withdraw(self) -> None:
        self._session = None
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _take(self, listed: Sequence[ListedTool]) -> None:
        self._listed = {one.name: one for one in listed}
        known, self._offering = self._offering, offer_tools(self._server, listed)
        for fault in self._offering.faults:
            if fault not in known.faults:
                log.warning("MCP server %r: %s", self._server.name, fault)
        self._tools = {
            one.spec.name: self._tool(
                one.spec,
                partial(self._call, one),
                read_only=one.read_only,
                idempotent=one.idempotent,
            )
            for one in self._offering.offers
        }

    def _tool(
        self,
        spec: ToolSpec,
        call: Callable[..., object],
        *,
        read_only: bool = False,
        idempotent: bool = False,
    ) -> Tool:
        return Tool(spec, _READ, call, read_only, self._server.timeout, idempotent)

    async def _call(self, offer: OfferedTool, arguments: dict[str, Json], _: ToolContext) -> str:
        session = self._session
        if session is None:
            raise ServerAway(self._server.name)
        if not offer.validator.is_valid(arguments):
            raise BadArguments(argument="*", reason="not as the schema has it")
        return await session.call(offer.name, arguments)

    async def _absent(self, _: dict[str, Json], __: ToolContext) -> str:
        raise ServerAway(self._server.name)
