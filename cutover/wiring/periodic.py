"""Chores: what is done again and again beside the serving, as long as somebody wants it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

log = logging.getLogger(__name__)


@asynccontextmanager
async def chore(
    name: str, do: Callable[[], Awaitable[None]], every: float, *, at_once: bool = False
) -> AsyncIterator[None]:
    """Do something every so many seconds, the first time `at_once` or after them.

    What it raises is logged, and it is done again the next time. What is under way in the end is
    waited for: a cancellation could get lost in the database's driver.
    """
    over = asyncio.Event()

    async def done() -> None:
        try:
            await do()
        except Exception:
            # Whatever it is: nobody looks after this task, and what it does would be done no more.
            log.exception("%s: failed, and is done again", name)

    task = asyncio.create_task(_repeat(done, every, over, at_once=at_once), name=name)
    try:
        yield
    finally:
        over.set()
        await asyncio.wait({task})


async def _repeat(
    do: Callable[[], Awaitable[None]], every: float, over: asyncio.Event, *, at_once: bool
) -> None:
    if at_once and not over.is_set():
        await do()
    while not over.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(every):
                await over.wait()
        if not over.is_set():
            await do()
