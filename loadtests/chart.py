"""Distributions as inline SVG: for each stack, the share of its requests that were that quick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import msgspec

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 44, 90, 12, 34
MOST_POINTS = 300
TICKS = 5
# Beyond this share of the values a few outliers would press everything else to the left edge.
SHOWN_SHARE = 0.995


class Curve(msgspec.Struct, frozen=True):
    """One stack's values in seconds, ascending, out of `requests` asked."""

    values: Sequence[float]
    requests: int


def distribution(title: str, curves: Mapping[str, Curve]) -> str:
    """Draw cumulative distributions; what a curve lacks of 100 % are requests that never got there.

    The axis starts at 0 and ends where 99.5 % of all values do.
    """
    every = sorted(value for curve in curves.values() for value in curve.values)
    if not every:
        return f"<figure><figcaption>{escape(title)}: no values</figcaption></figure>"
    end = every[min(int(len(every) * SHOWN_SHARE), len(every) - 1)] or 1e-3
    lines = [
        _curve(number, name, curve, end) for number, (name, curve) in enumerate(curves.items())
    ]
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{_grid(end)}{''.join(lines)}</svg></figure>"
    )


def _x(value: float, end: float) -> float:
    return LEFT + min(value / end, 1.0) * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _curve(number: int, name: str, curve: Curve, end: float) -> str:
    values = [value for value in curve.values if value <= end]
    every = max(len(values) // MOST_POINTS, 1)
    kept = [(rank, value) for rank, value in enumerate(values, 1) if rank % every == 0]
    steps = [f"M{LEFT:.1f},{_y(0):.1f}"]
    for rank, value in kept:
        steps.append(f"H{_x(value, end):.1f}V{_y(rank / curve.requests):.1f}")
    reached = kept[-1][0] / curve.requests if kept else 0.0
    steps.append(f"H{_x(end, end):.1f}")
    place = _y(reached) + 4 + number * 16
    return (
        f'<path class="curve s{number}" d="{"".join(steps)}"/>'
        f'<text class="s{number}" x="{WIDTH - RIGHT + 6}" y="{place:.1f}">{escape(name)}</text>'
    )


def _grid(end: float) -> str:
    parts: list[str] = []
    for tick in range(TICKS + 1):
        share = tick / TICKS
        x, y = _x(end * share, end), _y(share)
        parts.append(f'<path class="grid" d="M{LEFT},{y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}">{share:.0%}</text>')
        label = f"{end * share * 1000:.0f}"
        middle = f'x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}"'
        parts.append(f'<text class="tick mid" {middle}>{label}</text>')
    # Right of the last label, whose middle is where the axis ends.
    unit = f'x="{WIDTH - RIGHT + 30}" y="{HEIGHT - BOTTOM + 18}"'
    return "".join(parts) + f'<text class="unit" {unit}>ms</text>'
