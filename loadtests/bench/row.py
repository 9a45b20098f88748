"""One measured figure, with its target and how it was measured."""

from __future__ import annotations

import msgspec

DIGITS = 4


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `build/bench.json`; `ok` is None without a `target`, and where nobody can tell."""

    name: str
    value: float
    unit: str
    target: float | None = None
    ok: bool | None = None
    how: str


def told(name: str, value: float, unit: str, how: str) -> Row:
    """Tell a figure that nothing is asked of."""
    return Row(name=name, value=rounded(value), unit=unit, how=how)


def at_most(name: str, value: float, unit: str, target: float, how: str) -> Row:
    """Tell a figure that is good at or below its target."""
    ok = value <= target
    return Row(name=name, value=rounded(value), unit=unit, target=target, ok=ok, how=how)


def at_least(name: str, value: float, unit: str, target: float, how: str) -> Row:
    """Tell a figure that is good at or above its target."""
    ok = value >= target
    return Row(name=name, value=rounded(value), unit=unit, target=target, ok=ok, how=how)


def rounded(value: float) -> float:
    """Round to four significant digits: more than the machine can tell."""
    return float(f"{value:.{DIGITS}g}")
