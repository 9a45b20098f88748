"""A relay on loopback that can be cut, or held: a server that goes away, or says nothing."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from loadtests.processes import own_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Relay:
    """Passes bytes on to a port of loopback, until it is cut."""

    def __init__(self, port: int, to: int) -> None:
        self._to = to
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self.port = port
        self.flows = asyncio.Event()
        """Cleared, nothing passes, without an error."""
        self.flows.set()

    async def mend(self) -> None:
        """Listen, on the same port as before."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def cut(self) -> None:
        """Refuse everybody and break what is open."""
        self.flows.set()
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.close()
        if self._passing:
            await asyncio.wait(self._passing)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", self._to)
        for source, sink in ((reader, there[1]), (there[0], writer)):
            self._writers.add(sink)
            task = asyncio.create_task(self._pass(source, sink))
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                await self.flows.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()


@asynccontextmanager
async def relayed(port: int) -> AsyncIterator[Relay]:
    """Relay to a port for as long as the block lasts."""
    with own_port() as own:
        relay = Relay(own, port)
        await relay.mend()
        try:
            yield relay
        finally:
            await relay.cut()
