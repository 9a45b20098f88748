"""How long to wait before a worker that died is started again. Pure."""

from __future__ import annotations

STEADY_SECONDS = 60.0
"""Who lived as long has not died of its start."""
_FIRST = 0.5
_LONGEST = 30.0


def deaths_in_a_row(before: int, lived: float) -> int:
    """Count a death after so many, of a worker that lived so many seconds."""
    return 1 if lived >= STEADY_SECONDS else before + 1


def pause(deaths: int) -> float:
    """Give the seconds to wait: the first death costs nothing, each further one twice as much."""
    return 0.0 if deaths <= 1 else min(_LONGEST, _FIRST * 2.0 ** min(deaths - 2, 16))
