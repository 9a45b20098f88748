"""Formats: durations and shares as people can read them."""

from __future__ import annotations

_THOUSAND = 1_000
_MILLION = 1_000_000
_ROUNDED_UP = 999_500
"""Microseconds from which three digits say a second."""
_LEAST_SHOWN = 0.001
"""The least share that one decimal of a percentage can show."""


def duration(us: int) -> str:
    """Write a duration given in microseconds, three digits."""
    if us < _THOUSAND:
        return f"{us} µs"
    if us < _MILLION:
        return f"{us / _THOUSAND:.3g} ms" if us < _ROUNDED_UP else "1 s"
    return f"{us / _MILLION:.3g} s" if us < 1_000 * _MILLION else f"{us // _MILLION:,} s"


def percent(share: float) -> str:
    """Write a share; a small one is not rounded to nothing."""
    if share and share < _LEAST_SHOWN:
        return "< 0.1 %"
    return f"{share * 100:.1f} %" if share < 1 else "100 %"
