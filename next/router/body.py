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


async def cancel_when_left(
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]], task: asyncio.Task[Any]
) -> None:
    """Cancel a request's task when its client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass
    task.cancel()


class Body:
    """Sends pieces one after the other.

    async with body.open(comments=True):    # where comments may stand between pieces
        await body.send(piece)              # and `end` behind the last

    The block raises TimeoutError for a client that takes nothing for `SLOW_SECONDS`.
    """

    def __init__(self, send: Callable[[MutableMapping[str, Any]], Awaitable[None]]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._one = asyncio.Lock()
        self._sent = self._loop.time()
        self._waiting = False
        self._limit = asyncio.timeout(None)
        self._watch: asyncio.TimerHandle | None = None

    async def send(self, piece: bytes) -> None:
        """Send a piece, and wait until the client has taken enough of those before."""
        await self._next({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self) -> None:
        """End the body."""
        await self._next({"type": "http.response.body", "body": b""})

    async def _next(self, message: MutableMapping[str, Any]) -> None:
        async with self._one:
            self._sent, self._waiting = self._loop.time(), True
            await self._send(message)
            self._waiting = False

    @asynccontextmanager
    async def open(self, *, comments: bool) -> AsyncIterator[None]:
        """Send a comment whenever the block has sent nothing for `SILENCE_SECONDS`.

        The pieces are awaited by the caller's own task all the while: only sending is shared.
        """
        beating = asyncio.create_task(self._beat()) if comments else None
        self._watch_until(self._sent + SLOW_SECONDS)
        try:
            async with self._limit:
                yield
        finally:
            if self._watch is not None:
                self._watch.cancel()
            if beating is not None:
                beating.cancel()

    def _watch_until(self, due: float) -> None:
        """Look again when it is due: a time limit for each piece costs as much as its sending."""
        self._watch = self._loop.call_at(due, self._check)

    def _check(self) -> None:
        now = self._loop.time()
        due = (self._sent if self._waiting else now) + SLOW_SECONDS
        if due > now:
            self._watch_until(due)
        else:
            self._limit.reschedule(now)

    async def _beat(self) -> None:
        due = self._sent + SILENCE_SECONDS
        try:
            while True:
                await asyncio.sleep(due - self._loop.time())
                if self._sent + SILENCE_SECONDS <= due:
                    await self.send(comment("keep-alive"))
                due = self._sent + SILENCE_SECONDS
        except OSError:
            return  # the client has gone: who sends the next piece finds out
