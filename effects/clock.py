"""The wall clock, and one for tests that moves only when advanced."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class SystemClock:
    """The machine's clock."""

    async def now(self, site: str) -> datetime:
        """Return the time, aware, in UTC."""
        return datetime.now(UTC)

    def time(self) -> float:
        """Return the seconds since the Unix epoch, for stores that count leases."""
        return time.time()


class ManualClock:
    """A clock that stands still until it is advanced; `start` must be aware."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start.astimezone(UTC)

    async def now(self, site: str) -> datetime:
        """Return the time, aware, in UTC."""
        return self._now

    def time(self) -> float:
        """Return the seconds since the Unix epoch."""
        return self._now.timestamp()

    def advance(self, seconds: float) -> None:
        """Move forward (or, with a negative number, back)."""
        self._now += timedelta(seconds=seconds)
