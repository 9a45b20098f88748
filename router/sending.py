"""Sending: a client that takes nothing for too long is given up."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from contract.errors import CutoverError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Message, Send


class Unread(CutoverError):
    """A client has not taken what was sent to it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the client has taken nothing for {seconds:g} s")


class Deadline:
    """A `send` that waits for so many seconds: `within` it, `Unread` is raised where it is stuck.

    One timer for the whole answer: a time limit for every frame would cost more than sending it.
    """

    def __init__(self, send: Send, seconds: float) -> None:
        self._send = send
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._limit = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, message: Message) -> None:
        """Send."""
        self._since = self._loop.time()
        await self._send(message)
        self._since = None

    @asynccontextmanager
    async def within(self) -> AsyncIterator[None]:
        """Raise `Unread` out of the block once a message has been stuck for too long."""
        self._timer = self._loop.call_later(self._seconds, self._look)
        try:
            async with self._limit:
                yield
        except TimeoutError:
            if not self._limit.expired():
                raise
            raise Unread(self._seconds) from None
        finally:
            self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        since = now if self._since is None else self._since
        due = since + self._seconds
        if now >= due:
            self._limit.reschedule(now)
        else:
            self._timer = self._loop.call_at(due, self._look)
