"""Distributions as inline SVG: for each stack, the share of its requests that were that quick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import floor, log10

import msgspec

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 60, 90, 12, 34
MOST_POINTS = 300
SHARES = 5
MOST_STEPS = 6
NAME_HEIGHT = 19
# Beyond this share of the values a few outliers would press everything else to the left edge.
SHOWN_SHARE = 0.995


class Curve(msgspec.Struct, frozen=True):
    """One stack's values in seconds, ascending, out of `requests` asked."""

    values: Sequence[float]
    requests: int


def distribution(title: str, curves: Mapping[str, Curve]) -> str:
    """Draw cumulative distributions; what a curve lacks of 100 % are requests that never got there.

    The axis starts at 0 and ends where 99.5 % of all values do. Who was asked nothing has no curve.
    """
    every = sorted(value for curve in curves.values() for value in curve.values)
    if not every:
        return f"<figure><figcaption>{escape(title)}: no values</figcaption></figure>"
    end = every[min(int(len(every) * SHOWN_SHARE), len(every) - 1)] or 1e-3
    asked = {name: curve for name, curve in curves.items() if curve.requests}
    lines = [_curve(list(curves).index(name), curve, end) for name, curve in asked.items()]
    places = _apart([_y(_reached(curve, end)) + 4 for curve in asked.values()])
    names = [
        f'<text class="s{list(curves).index(name)}" x="{WIDTH - RIGHT + 6}" y="{place:.1f}">'
        f"{escape(name)}</text>"
        for name, place in zip(asked, places, strict=True)
    ]
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{_grid(end)}{''.join(lines + names)}</svg></figure>"
    )


def ticks(end: float) -> list[tuple[float, str]]:
    """Give round moments from 0 to `end` (seconds), each with its milliseconds as written."""
    least = end * 1_000 / MOST_STEPS
    lowest = floor(log10(least))
    power, factor = next(
        (power, factor)
        for power in (lowest, lowest + 1)
        for factor in (1, 2, 5)
        if factor * 10.0**power >= least
    )
    step, decimals = factor * 10.0**power, max(0, -power)
    count = int(end * 1_000 / step * (1 + 1e-9))
    return [(step * n / 1_000, f"{step * n:.{decimals}f}") for n in range(count + 1)]


def _apart(wanted: Sequence[float]) -> list[float]:
    """Move names that would lie on each other apart, and none below the axis."""
    order = sorted(range(len(wanted)), key=lambda at: wanted[at])
    places, free = list(wanted), float(TOP)
    for at in order:
        places[at] = max(places[at], free)
        free = places[at] + NAME_HEIGHT
    least = _y(0) + 4.0
    for at in reversed(order):
        places[at] = min(places[at], least)
        least = places[at] - NAME_HEIGHT
    return places


def _x(value: float, end: float) -> float:
    return LEFT + min(value / end, 1.0) * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _reached(curve: Curve, end: float) -> float:
    return sum(value <= end for value in curve.values) / curve.requests


def _curve(number: int, curve: Curve, end: float) -> str:
    values = [value for value in curve.values if value <= end]
    every = max(len(values) // MOST_POINTS, 1)
    steps = [f"M{LEFT:.1f},{_y(0):.1f}"]
    for rank, value in enumerate(values, 1):
        if rank % every == 0 or rank == len(values):
            steps.append(f"H{_x(value, end):.1f}V{_y(rank / curve.requests):.1f}")
    steps.append(f"H{_x(end, end):.1f}")
    return f'<path class="curve s{number}" d="{"".join(steps)}"/>'


def _grid(end: float) -> str:
    parts: list[str] = []
    for tick in range(SHARES + 1):
        y = _y(tick / SHARES)
        parts.append(f'<path class="grid" d="M{LEFT},{y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}">{tick / SHARES:.0%}</text>'
        )
    for moment, label in ticks(end):
        middle = f'x="{_x(moment, end):.1f}" y="{HEIGHT - BOTTOM + 22}"'
        parts.append(f'<text class="tick mid" {middle}>{label}</text>')
    # Right of the last label, whose middle is where the axis ends at most.
    unit = f'x="{WIDTH - RIGHT + 30}" y="{HEIGHT - BOTTOM + 22}"'
    return "".join(parts) + f'<text class="unit" {unit}>ms</text>'
