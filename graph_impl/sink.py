"""The way of events from the nodes of a run to its reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from contract.flow import Event

_END: Final = object()
_AHEAD: Final = 32
"""Events that may wait for the reader before the node that adds one waits too."""


class Sink:
    """Where the nodes of one run put their events."""

    __slots__ = ("queue",)

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue()

    async def send(self, *events: Event) -> None:
        """Hand events over; return once the reader has come back from the last."""
        for event in events:
            self._put(event)
        await self.drained()

    async def push(self, event: Event) -> None:
        """Hand over one of many events; after the last of them, await `drained`.

        Pieces of text that arrive together are handed over together: a switch between node and
        reader for each piece costs more than all the work on it.
        """
        self._put(event)
        if self.queue.qsize() >= _AHEAD:
            await self.drained()

    async def drained(self) -> None:
        """Wait until the reader has come back from all events, however slow it is."""
        await self.queue.join()

    def close(self, _: asyncio.Task[Any]) -> None:
        """Mark the end of the events."""
        self.queue.put_nowait(_END)

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events until the sink is closed."""
        while (event := await self.queue.get()) is not _END:
            yield event
            self.queue.task_done()  # only now: with an event in hand the reader may still leave

    def _put(self, event: Event) -> None:
        self.queue.put_nowait(event)
