"""The page of a load report: tables, and each metric's distribution as inline SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import floor, log10
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from loadtests.metrics import METRICS
from loadtests.report import (
    HEADS,
    LoadReport,
    method_line,
    metric_lines,
    objectives_line,
    stack_line,
    void_lines,
)
from loadtests.rows import LoadRow

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 60, 90, 12, 34
MOST_POINTS = 300
SHARES = 5
MOST_STEPS = 6
NAME_HEIGHT = 19
# Beyond this share of the values a few outliers would press everything else to the left edge.
SHOWN_SHARE = 0.995
DRAWN = ("ttft", "icl_max", "ttle")


class Curve(NamedTuple):
    """One stack's values in seconds, ascending, out of `requests` sent."""

    values: Sequence[float]
    requests: int


class DrawnCurve(NamedTuple):
    """One stack's curve as SVG draws it: its path, and the height of its name."""

    number: int
    name: str
    path: str
    y: float


class Chart(NamedTuple):
    """A metric's cumulative distributions with the labels of their axes, as (place, text).

    What a curve lacks of 100 % are requests that never got there. The axis of moments starts at 0
    and ends where 99.5 % of all values do; a stack without requests has no curve.
    """

    title: str
    curves: Sequence[DrawnCurve] = ()
    shares: Sequence[tuple[float, str]] = ()
    moments: Sequence[tuple[float, str]] = ()


def chart(title: str, curves: Mapping[str, Curve]) -> Chart:
    """Lay the distributions of one metric out."""
    every = sorted(value for curve in curves.values() for value in curve.values)
    if not every:
        return Chart(title)
    end = every[min(int(len(every) * SHOWN_SHARE), len(every) - 1)] or 1e-3
    loaded = [(number, name) for number, name in enumerate(curves) if curves[name].requests]
    reached = [
        sum(value <= end for value in curves[name].values) / curves[name].requests
        for _, name in loaded
    ]
    heights = _apart([_y(share) + 4 for share in reached])
    return Chart(
        title,
        [
            DrawnCurve(number, name, _path(curves[name], end), y)
            for (number, name), y in zip(loaded, heights, strict=True)
        ],
        [(_y(tick / SHARES), f"{tick / SHARES:.0%}") for tick in range(SHARES + 1)],
        [(_x(moment, end), label) for moment, label in ticks(end)],
    )


def ticks(end: float) -> list[tuple[float, str]]:
    """Return round moments from 0 to `end` (seconds), each with its milliseconds as written."""
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


def _path(curve: Curve, end: float) -> str:
    values = [value for value in curve.values if value <= end]
    every = max(len(values) // MOST_POINTS, 1)
    steps = [f"M{LEFT:.1f},{_y(0):.1f}"]
    for rank, value in enumerate(values, 1):
        if rank % every == 0 or rank == len(values):
            steps.append(f"H{_x(value, end):.1f}V{_y(rank / curve.requests):.1f}")
    return "".join((*steps, f"H{_x(end, end):.1f}"))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"WIDTH": WIDTH, "HEIGHT": HEIGHT, "LEFT": LEFT, "RIGHT": RIGHT}
    environment.globals |= {"BOTTOM": BOTTOM, "HEADS": HEADS, "stack_line": stack_line}
    return environment


def distribution(title: str, curves: Mapping[str, Curve]) -> str:
    """Draw cumulative distributions."""
    drawn: str = _environment().get_template("chart.html.j2").module.figure(chart(title, curves))  # type: ignore[attr-defined] # a macro
    return drawn


def page(report: LoadReport, rows: Sequence[LoadRow]) -> str:
    """Write the page; the curves are drawn from the rows of the runs that count."""
    counted = [row for row in rows if row.run in report.counted and row.ending != "cancelled"]
    load = f"{report.users} users" if report.rate is None else f"{report.rate:g} requests/s"
    runs = f"{len(report.runs)} runs of {report.seconds:g} s"
    order = f"order drawn with seed {report.seed}"
    charts = []
    for name in DRAWN:
        curves = {}
        for stack in report.urls:
            own = [row for row in counted if row.stack == stack]
            curves[stack] = Curve(sorted(METRICS[name].sample(own)), len(own))
        charts.append(chart(METRICS[name].title, curves))
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            report=report,
            title=f"Load: {' and '.join(report.urls)}, flow {report.flow}",
            setting=f"{load} ({report.engine}), {runs}, {order}, {report.cpus} CPUs",
            void=void_lines(report),
            objectives=objectives_line(report),
            method=method_line(report),
            lines=metric_lines(report),
            charts=charts,
        )
    )
