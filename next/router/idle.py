"""The idle gate: whether the event loop has time for what no client waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TICK_SECONDS = 0.005
LATE_SECONDS = 0.01
"""How late a timer may come on a loop that is idle enough."""
FRESH_SECONDS = 0.1
"""How long a measurement counts."""
PATIENCE_SECONDS = 10.0
"""How long to wait for an idle loop."""
POLL_SECONDS = 0.001
TURN_SECONDS = 0.5
"""How long work lets clients go first, at most, each time it has a turn."""
BURDEN_SECONDS = 0.5
"""How late all timers together may come because of one piece of work; then it is stopped."""


def _starved() -> float:
    """Return how long this thread has waited for a processor; 0 where the system does not say."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text("ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


@dataclass(slots=True, eq=False)
class IdleGate:
    """Measures how late timers come while streams, or one piece of work, keep the loop busy.

    if await gate.opens():
        async with asyncio.timeout(60) as limit:
            with gate.watch(limit):     # at an end, too, where clients wait too long for it
                await work()
    """

    hurried: Callable[[], bool] = lambda: False
    """Whether a client waits for its first text, also where its model is what it waits for."""
    starved: Callable[[], float] = _starved
    """How long this thread has waited for a processor, in seconds: that is not the work's fault."""
    late: float = 0.0
    """How late the newest timer came, in seconds."""
    delay: float = 0.0
    """How late the timers came together during the newest work, and because of it, in seconds."""
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

    async def turn(self) -> None:
        """Let all that is ready go first, and clients that wait for their first text."""
        loop = asyncio.get_running_loop()
        until = loop.time() + TURN_SECONDS
        await asyncio.sleep(0)
        while self.hurried() and loop.time() < until:  # noqa: ASYNC110 - hurry is no event
            await asyncio.sleep(POLL_SECONDS)

    @contextmanager
    def watch(self, limit: asyncio.Timeout) -> Iterator[None]:
        """Measure the delay of a piece of work; let its `limit` expire where that is too long."""
        loop, before = asyncio.get_running_loop(), self.starved()
        due, late = loop.time() + TICK_SECONDS, 0.0
        timer: asyncio.TimerHandle
        self.delay = 0.0

        def add() -> None:
            nonlocal late
            self._measure(due)
            if self.late > LATE_SECONDS:
                late += self.late
                self.delay = late - (self.starved() - before)

        def tick() -> None:
            nonlocal due, timer
            add()
            due = loop.time() + TICK_SECONDS
            if not self.burdened:
                timer = loop.call_at(due, tick)
            elif not limit.expired():
                limit.reschedule(loop.time())

        timer = loop.call_at(due, tick)
        try:
            yield
        finally:
            timer.cancel()
            add()

    def _measure(self, due: float) -> None:
        self._measured = asyncio.get_running_loop().time()
        self.late = self._measured - due
