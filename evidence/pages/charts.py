"""Charts as geometry in percent of the plot, to be drawn as SVG by `charts.html.j2`.

Texts keep their size at any width: only the curves are stretched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, log10
from typing import NamedTuple

MOST_POINTS = 300
MOST_STEPS = 6
# Beyond this share of the values a few outliers would press everything else to the left edge.
SHOWN_SHARE = 0.995
LEAST_END = 1e-6

Point = tuple[float, float]


class Label(NamedTuple):
    """A label of an axis: its place in percent of the plot, from the left or from below."""

    place: float
    text: str


class Curve(NamedTuple):
    """One curve: its place among the names, its name, and its path in a plot of 100 x 100."""

    number: int
    name: str
    path: str


class Chart(NamedTuple):
    """A plot with its axes; without curves there was nothing to draw. `x_unit` is its x axis'."""

    title: str
    note: str = ""
    x_unit: str = ""
    curves: Sequence[Curve] = ()
    x_labels: Sequence[Label] = ()
    y_labels: Sequence[Label] = ()


class Sample(NamedTuple):
    """Values of one name, ascending, out of `total`: what never got there has no value."""

    values: Sequence[float]
    total: int


def cumulative(title: str, samples: Mapping[str, Sample], *, note: str, x_unit: str) -> Chart:
    """Draw empirical distribution functions: the share of `total` at or below each value.

    What a curve lacks of 100 % are cases without a value. The x axis starts at 0 and ends where
    99.5 % of all values do; a name without cases has no curve.
    """
    every = sorted(value for sample in samples.values() for value in sample.values)
    if not every:
        return Chart(title, note)
    end = max(every[min(int(len(every) * SHOWN_SHARE), len(every) - 1)], LEAST_END)
    return Chart(
        title,
        note,
        x_unit,
        [
            Curve(number, name, _steps(sample, end))
            for number, (name, sample) in enumerate(samples.items())
            if sample.total
        ],
        labels(end),
        [Label(share, f"{share} %") for share in range(0, 101, 20)],
    )


def lines(title: str, series: Mapping[str, Sequence[Point]], *, note: str, x_unit: str) -> Chart:
    """Draw y over x, both from 0 on; a name without points has no curve."""
    points = [point for own in series.values() for point in own]
    if not points:
        return Chart(title, note)
    width = max(LEAST_END, *(x for x, _ in points))
    height = 1.05 * max(y for _, y in points)
    height = height if height > LEAST_END else 1.0
    return Chart(
        title,
        note,
        x_unit,
        [
            Curve(number, name, _line(own, width, height))
            for number, (name, own) in enumerate(series.items())
            if own
        ],
        labels(width),
        labels(height),
    )


def labels(end: float) -> list[Label]:
    """Return round numbers from 0 to `end`, three to seven of them, each at its own place."""
    least = end / MOST_STEPS
    lowest = floor(log10(least))
    power, factor = next(
        (power, factor)
        for power in (lowest, lowest + 1)
        for factor in (1, 2, 5)
        if factor * 10.0**power >= least
    )
    step, decimals = factor * 10.0**power, max(0, -power)
    count = int(end / step * (1 + 1e-9))
    return [Label(100 * step * n / end, f"{step * n:,.{decimals}f}") for n in range(count + 1)]


def _steps(sample: Sample, end: float) -> str:
    values = [value for value in sample.values if value <= end]
    every = max(len(values) // MOST_POINTS, 1)
    path = ["M0,100"]
    for rank, value in enumerate(values, 1):
        if rank % every == 0 or rank == len(values):
            path.append(f"H{100 * value / end:.2f}V{100 - 100 * rank / sample.total:.2f}")
    return "".join((*path, "H100"))


def _line(points: Sequence[Point], width: float, height: float) -> str:
    places = (f"{100 * x / width:.2f},{100 - 100 * y / height:.2f}" for x, y in sorted(points))
    return "M" + "L".join(places)
