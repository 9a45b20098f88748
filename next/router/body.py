"""Bodies: a request's within its limits; a response's with comments in silence, and an end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from cutover.errors import Refused
from cutover.wire import comment

log = logging.getLogger(__name__)

SILENCE_SECONDS = 15.0
"""Proxies take a stream that is silent for a minute, some for less, as dead."""
SLOW_SECONDS = 30.0
"""How long a client may take nothing of what is sent to it."""


BODY_SECONDS = 60.0
"""What a client may take to send its body; it takes no stream's place meanwhile."""


async def read_body(
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]], limit: int
) -> bytes:
    """Return a request's body of at most `limit` bytes.

    Raises `Refused`: 400 for one cut short, 408 one that takes too long, 413 one too large.
    """
    pieces: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refused(400, "incomplete_body", "the body ended early")
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if size > limit:
                    raise Refused(413, "body_too_large", f"the body has more than {limit} bytes")
                more = message.get("more_body", False)
    except TimeoutError as error:
        detail = f"the body has not come within {BODY_SECONDS:g} s"
        raise Refused(408, "body_too_slow", detail) from error
    return b"".join(pieces)


class Body:
    """Sends pieces one after the other.

    async with body.kept_alive():           # where comments may stand between pieces
        await body.send(piece)              # raises TimeoutError for a client that reads nothing
    """

    def __init__(self, send: Callable[[MutableMapping[str, Any]], Awaitable[None]]) -> None:
        self._send = send
        self._sending = asyncio.Lock()
        self._sent = asyncio.get_running_loop().time()

    async def send(self, piece: bytes) -> None:
        """Send a piece, and wait until the client has taken enough of those before."""
        async with self._sending, asyncio.timeout(SLOW_SECONDS):
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        self._sent = asyncio.get_running_loop().time()

    async def end(self) -> None:
        """End the body."""
        async with self._sending, asyncio.timeout(SLOW_SECONDS):
            await self._send({"type": "http.response.body", "body": b""})

    @asynccontextmanager
    async def kept_alive(self, *, comments: bool) -> AsyncIterator[None]:
        """Send a comment whenever the block has sent nothing for `SILENCE_SECONDS`.

        The pieces are awaited by the caller's own task all the while: only sending is shared.
        """
        if not comments:
            yield
            return
        beating = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        due = self._sent + SILENCE_SECONDS
        try:
            while True:
                await asyncio.sleep(due - asyncio.get_running_loop().time())
                if self._sent + SILENCE_SECONDS <= due:
                    await self.send(comment("keep-alive"))
                due = self._sent + SILENCE_SECONDS
        except OSError:
            return  # the client has gone, or reads nothing: who sends the next piece finds out
