"""Draining: connections whose streams have ended are read to their end, to be used again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from aiohttp import ClientResponse

PATIENCE = 1.0
"""Seconds a stack has to end a response after its last frame; then the connection is dropped."""


class Draining:
    """Waits for the ends of responses, so that nobody who is served has to."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, response: ClientResponse) -> None:
        """Read a response to its end, in the background; what comes is nothing to anybody."""
        if response.content.is_eof():
            response.close()  # its connection has been given back already
            return
        task = asyncio.get_running_loop().create_task(_drained(response), name="drain")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Drop what has not ended."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _drained(response: ClientResponse) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            while await response.content.readany():
                pass
    except (aiohttp.ClientError, OSError):
        pass  # a broken connection is not used again
    finally:
        response.close()
