"""The pulse: a task that looks how late the loop is, and keeps the panel up to date."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from router.telemetry.metrics.instruments import LOOP_LAG

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from router.telemetry.metrics.books import Books
    from router.telemetry.metrics.panel import Panel

BEAT_SECONDS = 0.25
BEATS_A_COPY = 4
BEATS_REMEMBERED = 60


@asynccontextmanager
async def beating(
    panel: Panel, books: Books, monotonic: Callable[[], float] = time.perf_counter
) -> AsyncIterator[None]:
    """Keep the panel at most a second old for as long as the block lasts, and when it ends."""
    task = asyncio.create_task(_beat(panel, books, monotonic), name="pulse")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        books.copy()


async def _beat(panel: Panel, books: Books, monotonic: Callable[[], float]) -> None:
    late: deque[float] = deque(maxlen=BEATS_REMEMBERED)
    while True:
        books.copy()
        for _ in range(BEATS_A_COPY):
            due = monotonic() + BEAT_SECONDS
            await asyncio.sleep(BEAT_SECONDS)
            late.append(max(monotonic() - due, 0.0))
        panel.put(LOOP_LAG, max(late))
