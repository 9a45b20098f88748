"""The load report as one self-contained page, light and dark, nothing to load or to run."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from loadtests.chart import Curve, distribution
from loadtests.comparison import SHOWN
from loadtests.metrics import METRICS
from loadtests.rows import Row
from loadtests.wording import (
    excluded_cell,
    failures_line,
    goodput_line,
    method_line,
    objectives_line,
    paired_cell,
    percentile_cell,
    void_lines,
)

if TYPE_CHECKING:
    from loadtests.report import LoadReport

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


def write_page(report: LoadReport, rows: Sequence[Row], path: Path) -> None:
    """Write the page; the curves are drawn from the rows of the runs that count."""
    path.write_text(page(report, rows), "utf-8")


def page(report: LoadReport, rows: Sequence[Row]) -> str:
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


def _chart(name: str, report: LoadReport, rows: Sequence[Row]) -> str:
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
