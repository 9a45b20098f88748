"""A connection of the simulated provider, and playing a plan over it."""

import asyncio
import os
import socket
import struct

from starlette.types import Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from loadtests.simulator.plan import Plan


class Connection(HttpToolsProtocol):
    """uvicorn's connection, which the application reaches as `scope["state"]["connection"]`.

    `lost` is done once either side has closed it, with the loop's time.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Begin to watch the connection."""
        super().connection_made(transport)
        self.lost: asyncio.Future[float] = self.loop.create_future()

    def on_message_begin(self) -> None:
        """Begin a request, and let it reach this connection."""
        super().on_message_begin()
        self.scope["state"]["connection"] = self

    def connection_lost(self, exc: Exception | None) -> None:
        """Note when the connection was lost."""
        self.lost.set_result(self.loop.time())
        super().connection_lost(exc)

    async def left_within(self, seconds: float | None) -> bool:
        """Wait for seconds (None: for ever) or until the client leaves; return whether it has."""
        if seconds == 0:
            await asyncio.sleep(0)
        elif not self.lost.done():
            await asyncio.wait([self.lost], timeout=seconds)
        return self.lost.done()

    def cut(self, *, reset: bool = False) -> None:
        """Close after what was written has gone out; with `reset`, drop it and send an RST."""
        self.cycle.disconnected = True  # or uvicorn takes the open answer for a mistake
        if not reset:
            self.transport.close()
            return
        number = self.transport.get_extra_info("socket").fileno()
        with socket.socket(fileno=os.dup(number)) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


async def play(plan: Plan, connection: Connection, send: Send, pause: float) -> bool:
    """Return whether the client left before a plan was sent, its parts `pause` seconds apart."""
    if plan.ending == "never":
        return await connection.left_within(None)
    if plan.ending == "reset":
        connection.cut(reset=True)
        return False
    headers = [(name.encode(), value.encode()) for name, value in plan.headers]
    started = {
        "type": "http.response.start",
        "status": plan.status,
        "headers": [(b"content-type", plan.media), *headers],
    }
    if plan.headers_first:
        await send(started)
    if plan.wait and await connection.left_within(plan.wait):
        return True
    if not plan.headers_first:
        await send(started)
    for part in plan.parts:
        if await connection.left_within(pause * part.pauses):
            return True
        await send({"type": "http.response.body", "body": part.data, "more_body": True})
    if plan.ending == "silent":
        return await connection.left_within(None)
    if plan.ending == "cut":
        connection.cut()
    else:
        await send({"type": "http.response.body", "body": b""})
    return False
