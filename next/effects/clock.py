"""The time of day, as an effect: every run of an exchange reads the same."""

from __future__ import annotations

from datetime import datetime

from cutover import effect
from effects.world import current


@effect("clock.now")
async def now() -> str:
    """Return the time in the configured zone: ISO 8601, milliseconds, offset."""
    return local_time(current().clock())


def local_time(seconds: float) -> str:
    """Return seconds since the epoch as `now` would; for what is stored outside a run."""
    return datetime.fromtimestamp(seconds, current().zone).isoformat(timespec="milliseconds")
