"""Timelines and histograms as geometry: positions in percent, to be drawn as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from compare.clusters import Cell, Mark, Row
from compare.report.latency import Latency

LABEL_WIDTH = 9.0
EDGE = 92.0
"""Both in percent of the width, as on a phone."""


class Tick(NamedTuple):
    """One frame on a lane; `x` in percent of the width."""

    x: float
    same: bool
    label: str


class Lane(NamedTuple):
    """The frames of one run; `side` says which, whatever the runs are called."""

    side: Literal["legacy", "graph"]
    ticks: tuple[Tick, ...]


class Timeline(NamedTuple):
    """Both streams on one axis from `start` to `end` microseconds; `apart` where they part."""

    lanes: tuple[Lane, Lane]
    start: int
    end: int
    apart: float | None


class Bar(NamedTuple):
    """One bin: place and width in percent of the width, height as a share of the tallest."""

    x: float
    width: float
    height: float


class PercentileMark(NamedTuple):
    """A percentile's place in percent of the width, and where its label (if any) is anchored."""

    x: float
    label: str
    anchor: Literal["start", "end"]


def timeline_of(rows: Sequence[Row]) -> Timeline | None:
    """Draw the rows of an exemplar; None when there is nothing to draw."""
    moments = [cell.at for row in rows for cell in (row.legacy, row.graph) if cell]
    if not moments:
        return None
    start, end = min(moments), max(moments)

    def x(at: int) -> float:
        """Place a moment, a little away from both edges."""
        return round(1 + 98 * (at - start) / max(1, end - start), 3)

    lanes = (
        Lane("legacy", tuple(_ticks(((row.mark, row.legacy) for row in rows), x))),
        Lane("graph", tuple(_ticks(((row.mark, row.graph) for row in rows), x))),
    )
    parting = next((row for row in rows if row.mark != "same"), None)
    cells = (parting.legacy, parting.graph) if parting else ()
    apart = min((cell.at for cell in cells if cell), default=None)
    return Timeline(lanes, start, end, None if apart is None else x(apart))


def _ticks(cells: Iterable[tuple[Mark, Cell | None]], x: Callable[[int], float]) -> Iterator[Tick]:
    return (Tick(x(cell.at), mark == "same", cell.name) for mark, cell in cells if cell)


def bars_of(latency: Latency) -> tuple[Bar, ...]:
    """Draw a histogram; empty bins are left out."""
    tallest = max(latency.histogram, default=0)
    width = 100 / max(1, len(latency.histogram))
    return tuple(
        Bar(round(k * width, 3), round(width * 0.86, 3), round(count / tallest, 4))
        for k, count in enumerate(latency.histogram)
        if count
    )


def marks_of(latency: Latency) -> tuple[PercentileMark, ...]:
    """Place the percentiles on the histogram's logarithmic axis, labels off each other."""
    low = math.log(max(1, latency.axis_low))
    span = max(math.log(max(2, latency.axis_high)) - low, 0.01)
    marks: list[PercentileMark] = []
    for p in reversed(latency.percentiles):
        x = round(min(100.0, 100 * (math.log(max(1, p.value)) - low) / span), 3)
        marks.append(_mark(x, f"P{p.share * 100:.0f}", marks[-1] if marks else None))
    return tuple(reversed(marks))


def _mark(x: float, label: str, follower: PercentileMark | None) -> PercentileMark:
    """Turn a label away from the edge, and from the label to its right; leave it out if it must."""
    free = math.inf if follower is None else follower.x - x
    if follower is not None and follower.anchor == "end":
        free -= LABEL_WIDTH
    if x <= EDGE and free >= LABEL_WIDTH:
        return PercentileMark(x, label, "start")
    return PercentileMark(x, label if free >= 0 and x > LABEL_WIDTH else "", "end")
