"""A connection to a stack: one request at a time, its answer as it comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from router.remote.http1.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Callable


class Connection(asyncio.Protocol):
    """Asks, and hands what comes to the answer.

    `free` is called when it may be asked again, `lost` when it is no more.
    """

    def __init__(
        self, free: Callable[[Connection], None], lost: Callable[[Connection], None]
    ) -> None:
        self._free = free
        self._lost = lost
        self._answer: Answer | None = None
        self._transport: asyncio.Transport | None = None
        self._paused = False

    @property
    def closing(self) -> bool:
        """Whether it can be asked nothing more."""
        return self._transport is None or self._transport.is_closing()

    def ask(self, request: bytes) -> Answer:
        """Send a request; gives its answer, of which nothing is there yet."""
        answer = self._answer = Answer(self)
        if self._transport is None or self.closing:
            answer.end("the connection was closed")
        else:
            self._transport.write(request)
        return answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's is one by its methods only.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Hand bytes to the answer they belong to."""
        answer = self._answer
        if answer is None:
            self.drop()  # nobody has asked
        elif answer.feed(data) and self._said:
            self._answer = None
            self.resume()
            self._free(self)
        elif answer.over:
            self.drop()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the answer, and whoever keeps connections."""
        self._transport = None
        if self._answer is not None:
            self._answer.end(type(error).__name__ if error else "")
            self._answer = None
        self._lost(self)

    @property
    def _said(self) -> bool:
        """Whether the whole request is out: who answers before that may never read the rest."""
        return self._transport is not None and not self._transport.get_write_buffer_size()

    def pause(self) -> None:
        """Read nothing for the time being."""
        if self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._transport is not None and self._paused:
            self._paused = False
            self._transport.resume_reading()

    def drop(self) -> None:
        """End it, now: a service notices as it would without a router."""
        if self._transport is not None:
            self._transport.abort()
