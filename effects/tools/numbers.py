"""Numbers as people write them."""

from __future__ import annotations

import math

_DIGITS = 12
_EXACT_BELOW = 1e15  # whole numbers a double holds exactly, with room to spare


def readable(number: float) -> str:
    """Write a number: whole ones without a point, others with up to 12 significant digits."""
    if isinstance(number, int):
        return str(number)
    if not math.isfinite(number):
        raise OverflowError(number)
    rounded = float(f"{number:.{_DIGITS}g}")
    if rounded.is_integer() and abs(rounded) < _EXACT_BELOW:
        return str(int(rounded))
    return f"{rounded:.{_DIGITS}g}"
