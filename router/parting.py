"""Parting: a client that leaves is noticed, whatever else goes on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from effects.tape import Signal
from router.extensions import LEAVING, extension

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope


class Parting:
    """Calls `leave` once the client has gone, until it is ended.

    A task that waits for that is only needed where the server tells it no other way.
    """

    def __init__(self, scope: Scope, receive: Receive, leave: Callable[[], None]) -> None:
        self._leave = leave
        self._gone = False
        self._noticed = Signal()
        self._task: asyncio.Task[None] | None = None
        self._tell = extension(scope, LEAVING)
        if self._tell is None:
            self._task = asyncio.get_running_loop().create_task(self._watch(receive))
        else:
            self._tell(self._left)

    def end(self) -> None:
        """Watch no longer."""
        if self._task is not None:
            self._task.cancel()
        else:
            self._tell(None)

    async def noticed(self, seconds: float) -> None:
        """Wait until it is known that the client has gone, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._gone:
                    await self._noticed.wait()

    def _left(self) -> None:
        self._gone = True
        self._leave()
        self._noticed.wake()

    async def _watch(self, receive: Receive) -> None:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self._left()
                return
