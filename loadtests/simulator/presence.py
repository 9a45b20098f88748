"""Whether the client is still there, and waiting for a moment while it is."""

import asyncio
from types import TracebackType
from typing import Self

from starlette.types import Receive

LONGEST_RUN_S = 0.001


class Presence:
    """Watches a client through ASGI's `receive`; enter it once the body has been read."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None
        self._yielded = 0.0
        self.gone = False

    async def __aenter__(self) -> Self:
        """Begin to watch."""
        self._watch = self._loop.create_task(self._until_gone())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop watching."""
        self._watch.cancel()

    async def until(self, moment: float | None) -> bool:
        """Wait for a moment of the loop's clock (None: for ever); whether the client left first."""
        if self.gone:
            return True
        now = self._loop.time()
        if moment is not None and moment <= now:
            if now - self._yielded > LONGEST_RUN_S:  # a stream that is late must hear of it too
                await asyncio.sleep(0)
                self._yielded = now
            return self.gone
        self._waiting = self._loop.create_future()
        timer = None if moment is None else self._loop.call_at(moment, self._wake)
        try:
            await self._waiting
        finally:
            if timer is not None:
                timer.cancel()
            self._waiting = None
        self._yielded = self._loop.time()
        return self.gone

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self._wake()
