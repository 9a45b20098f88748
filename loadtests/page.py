"""The page of a load report: tables, and each metric's distribution as inline SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import floor, log10
from pathlib import Path

import msgspec

from loadtests.comparison import SHOWN
from loadtests.metrics import METRICS
from loadtests.report import (
    LoadReport,
    excluded_cell,
    failures_line,
    goodput_line,
    method_line,
    objectives_line,
    paired_cell,
    percentile_cell,
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
STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --dim: #6b6b6b; --line: #d9d9d9; --page: #fff;
  --s0: #1f5fbf; --s1: #c4510a; --bad: #a8201a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --dim: #a0a0a0; --line: #3a3a3a;
  --page: #161616; --s0: #7fb0ff; --s1: #ff9f5a; --bad: #ff8a80; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line);
  font-variant-numeric: tabular-nums; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
tr.next td { border-top: 2px solid var(--line); }
figure { margin: 1.5rem 0; } figcaption { font-weight: 600; } svg { width: 100%; height: auto; }
svg text { font-size: 12px; fill: var(--dim); }
@media (max-width: 600px) { svg text { font-size: 18px; } }
.tick { text-anchor: end; } .mid { text-anchor: middle; }
.grid { stroke: var(--line); fill: none; } .curve { fill: none; stroke-width: 2; }
.curve.s0 { stroke: var(--s0); } .curve.s1 { stroke: var(--s1); stroke-dasharray: 6 3; }
text.s0, td.s0 { fill: var(--s0); color: var(--s0); }
text.s1, td.s1 { fill: var(--s1); color: var(--s1); }
.void { color: var(--bad); font-weight: 600; } .note { color: var(--dim); }
"""


class Curve(msgspec.Struct, frozen=True):
    """One stack's values in seconds, ascending, out of `requests` sent."""

    values: Sequence[float]
    requests: int


def distribution(title: str, curves: Mapping[str, Curve]) -> str:
    """Draw cumulative distributions; what a curve lacks of 100 % are requests that never got there.

    The axis starts at 0 and ends where 99.5 % of all values do; a stack without requests has no
    curve.
    """
    every = sorted(value for curve in curves.values() for value in curve.values)
    if not every:
        return f"<figure><figcaption>{escape(title)}: no values</figcaption></figure>"
    end = every[min(int(len(every) * SHOWN_SHARE), len(every) - 1)] or 1e-3
    loaded = {name: curve for name, curve in curves.items() if curve.requests}
    lines = [_curve(list(curves).index(name), curve, end) for name, curve in loaded.items()]
    places = _apart([_y(_reached(curve, end)) + 4 for curve in loaded.values()])
    names = [
        f'<text class="s{list(curves).index(name)}" x="{WIDTH - RIGHT + 6}" y="{place:.1f}">'
        f"{escape(name)}</text>"
        for name, place in zip(loaded, places, strict=True)
    ]
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{_grid(end)}{''.join(lines + names)}</svg></figure>"
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


def write_page(report: LoadReport, rows: Sequence[LoadRow], path: Path) -> None:
    """Write the page; the curves are drawn from the rows of the runs that count."""
    path.write_text(page(report, rows), "utf-8")


def page(report: LoadReport, rows: Sequence[LoadRow]) -> str:
    """Put the page together."""
    counted = [row for row in rows if row.run in report.counted and row.ending != "cancelled"]
    title = f"Load: {' and '.join(report.urls)}, flow {report.flow}"
    body = [
        f"<h1>{escape(title)}</h1>",
        _paragraph(_setting(report)),
        *(_paragraph(line, "void") for line in void_lines(report)),
        *(
            _paragraph(f"{stack.stack}: {failures_line(stack)}; {goodput_line(stack)}")
            for stack in report.stacks
        ),
        _paragraph(objectives_line(report), "note"),
        _table(report),
        _paragraph(method_line(report), "note"),
        *(_chart(name, report, counted) for name in DRAWN),
        "<h2>Runs, in order</h2>",
        _runs(report),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>{''.join(body)}"
        "</body></html>\n"
    )


def _setting(report: LoadReport) -> str:
    load = f"{report.users} users" if report.rate is None else f"{report.rate:g} requests/s"
    runs = f"{len(report.runs)} runs of {report.seconds:g} s"
    order = f"order drawn with seed {report.seed}"
    return f"{load} ({report.engine}), {runs}, {order}, {report.cpus} CPUs"


def _paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>'


def _table(report: LoadReport) -> str:
    heads = ["metric", "stack", *(f"P{p * 100:.0f}" for p in SHOWN), "n", "excluded", "P95 ratio"]
    lines = [line for name in METRICS for line in _metric_lines(name, report)]
    head = "".join(f"<th>{head}</th>" for head in heads)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(lines)}</table></div>'


def _metric_lines(name: str, report: LoadReport) -> list[str]:
    paired = next((one for one in report.paired if one.metric == name), None)
    lines: list[str] = []
    for number, stack in enumerate(report.stacks):
        metric = next(one for one in stack.metrics if one.name == name)
        first = number == 0
        cells = [
            *(percentile_cell(metric, place) for place in range(len(SHOWN))),
            str(metric.n),
            excluded_cell(metric),
            paired_cell(paired) if number == 1 else "",
        ]
        lines.append(
            f'<tr class="{"next" if first else ""}">'
            f"<td>{escape(metric.title) if first else ''}</td>"
            f'<td class="s{number}">{escape(stack.stack)}</td>'
            + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            + "</tr>"
        )
    return lines


def _chart(name: str, report: LoadReport, rows: Sequence[LoadRow]) -> str:
    metric = METRICS[name]
    curves: dict[str, Curve] = {}
    for stack in report.urls:
        own = [row for row in rows if row.stack == stack]
        curves[stack] = Curve(sorted(metric.sample(own, report.clock)), len(own))
    return distribution(metric.title, curves)


def _runs(report: LoadReport) -> str:
    heads = ("run", "pair", "stack", "requests", "seconds", "lag P99 ms", "generator", "machine")
    lines = [
        (
            str(run.run),
            str(run.pair),
            run.stack,
            str(run.requests),
            f"{run.window:.1f}",
            "?" if run.lag_p99 is None else f"{run.lag_p99 * 1000:.1f}",
            f"{run.generator_cpu:.0%}",
            "?" if run.machine_cpu is None else f"{run.machine_cpu:.0%}",
        )
        for run in report.runs
    ]
    head = "".join(f"<th>{head}</th>" for head in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines
    )
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'
