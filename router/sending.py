"""Sending: a client that takes nothing for too long is given up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from contract.errors import CutoverError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from starlette.types import Message, Send


class Unread(CutoverError):
    """A client has not taken what was sent to it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the client has taken nothing for {seconds:g} s")


class Deadline:
    """A `send` that waits for so many seconds: its block ends with `Unread` where it is stuck.

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

    async def __aenter__(self) -> Self:
        """Begin the block, which a message that is stuck for too long ends."""
        await self._limit.__aenter__()
        self._timer = self._loop.call_later(self._seconds, self._look)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the block; raises `Unread` where a message was stuck."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            raise Unread(self._seconds) from None

    def _look(self) -> None:
        now = self._loop.time()
        since = now if self._since is None else self._since
        due = since + self._seconds
        if now >= due:
            self._limit.reschedule(now)
        else:
            self._timer = self._loop.call_at(due, self._look)
