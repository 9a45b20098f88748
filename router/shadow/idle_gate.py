"""The idle gate: shadows yield to requests that are being served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

QUIET_SECONDS = 0.0005
"""After a sign of serving more of it is near for so long: a hop to a thread, a task woken."""
NAP_SECONDS = 0.001
"""How long to wait before looking again; event loops round timers to milliseconds."""
PATIENCE_SECONDS = 0.25
"""How long one run waits in all: a loop that is never idle must not starve it."""


class IdleGate:
    """Knows when a request was last being served.

    Served exchanges get `clock`, and each reading of it is a sign of serving.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self._last = float("-inf")

    def clock(self) -> float:
        """Return the time in seconds, for an exchange that is served."""
        self._last = now = self.monotonic()
        return now

    @property
    def idle(self) -> bool:
        """Whether nothing has just been served."""
        return self.monotonic() - self._last >= QUIET_SECONDS

    async def wait(self, patience: float = PATIENCE_SECONDS) -> float:
        """Wait until it is idle, at most `patience` seconds; returns what is left of them."""
        while patience > 0 and not self.idle:
            patience -= NAP_SECONDS
            await asyncio.sleep(NAP_SECONDS)
        return patience
