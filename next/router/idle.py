"""The idle gate: whether the event loop has time for what no client waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

TICK_SECONDS = 0.005
LATE_SECONDS = 0.01
"""How late a timer may come on a loop that is idle enough."""
FRESH_SECONDS = 0.1
"""How long a measurement counts."""
PATIENCE_SECONDS = 10.0
"""How long to wait for an idle loop."""
BURDEN_SECONDS = 0.25
"""How late all timers together may come during one piece of work; then it is stopped."""


@dataclass(slots=True, eq=False)
class IdleGate:
    """Measures how late timers come while streams, or one piece of work, keep the loop busy.

    if await gate.opens():
        async with asyncio.timeout(60) as limit:
            with gate.watch(limit):     # at an end, too, where clients wait too long for it
                await work()
    """

    late: float = 0.0
    """How late the newest timer came, in seconds."""
    delay: float = 0.0
    """How late the timers came together during the newest work, in seconds."""
    _measured: float = float("-inf")

    @property
    def burdened(self) -> bool:
        """Whether clients had to wait too long for the newest work."""
        return self.delay > BURDEN_SECONDS

    async def opens(self) -> bool:
        """Wait until the loop is idle enough; return False where it stays busy."""
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_SECONDS
        while loop.time() > self._measured + FRESH_SECONDS or self.late > LATE_SECONDS:
            if loop.time() > until:
                return False
            due = loop.time() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self._measure(due)
        return True

    @contextmanager
    def watch(self, limit: asyncio.Timeout) -> Iterator[None]:
        """Measure the delay of a piece of work; let its `limit` expire where that is too long."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle
        self.delay = 0.0

        def tick(due: float) -> None:
            nonlocal timer
            self._measure(due)
            self.delay += self.late if self.late > LATE_SECONDS else 0.0
            if not self.burdened:
                timer = begin()
            elif not limit.expired():
                limit.reschedule(loop.time())

        def begin() -> asyncio.TimerHandle:
            due = loop.time() + TICK_SECONDS
            return loop.call_at(due, tick, due)

        timer = begin()
        try:
            yield
        finally:
            timer.cancel()
            late = loop.time() - timer.when()
            self.delay += late if late > LATE_SECONDS and not self.burdened else 0.0

    def _measure(self, due: float) -> None:
        self._measured = asyncio.get_running_loop().time()
        self.late = self._measured - due
