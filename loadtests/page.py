"""The page of a load report: percentiles, distributions, the course of a run, endings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from math import nan
from pathlib import Path
from typing import NamedTuple

from pandas import DataFrame, Series

from evidence.intervals import percentile, share_interval
from evidence.pages import PageTemplates, percent
from evidence.pages.charts import Chart, Point, Sample, cumulative, lines
from loadtests.metrics import METRICS, Metric, is_good
from loadtests.report import (
    BROKEN_OFF,
    COMPARED,
    SHOWN,
    LoadReport,
    MetricSummary,
    StackSummary,
    load_line,
    method_line,
    milliseconds,
    objectives_line,
    p95_ratios,
    paired_lines,
    paired_text,
    stack_line,
    void_lines,
)
from loadtests.rows import FAILURES, SECOND, LoadRow

DISTRIBUTIONS = ("ttft", "icl_max", "itl", "ttle")
HEADLINE = "ttft"
MOST_BINS = 40
LEAST_BIN = 0.5
"""Seconds."""


class EndingLine(NamedTuple):
    """How requests ended: a kind, or a code of it, with each stack's number and share."""

    kind: str
    code: str
    cells: Sequence[tuple[int, str, str]]


def page(report: LoadReport, rows: Sequence[LoadRow]) -> str:
    """Write the page; the curves are drawn from the rows of the runs that count."""
    counted = [row for row in rows if row.run in report.counted and row.ending != "cancelled"]
    return _templates().render(
        "page.html.j2",
        report=report,
        title=_title(report),
        tone="unknown" if report.basis == "void" or report.broken_off else "good",
        reasons=[*void_lines(report), *_headline(report)],
        load=load_line(report),
        tiles=_tiles(report),
        paired=p95_ratios(report),
        summaries=list(zip(*(stack.metrics for stack in report.stacks), strict=True)),
        distributions=list(_distributions(report, counted)),
        course=list(_course(report, counted)),
        endings=list(_endings(report.stacks)),
        objectives=objectives_line(report),
        method=method_line(report),
    )


@cache
def _templates() -> PageTemplates:
    return PageTemplates(
        Path(__file__).parent,
        filters={"ms": milliseconds},
        names={
            "SHOWN": SHOWN,
            "BROKEN_OFF": BROKEN_OFF,
            "stack_line": stack_line,
            "worst_p95": worst_p95,
            "good_share": good_share,
        },
    )


def _title(report: LoadReport) -> str:
    if report.broken_off:
        return "Broken off"
    return "Void" if report.basis == "void" else "Measured"


def _tiles(report: LoadReport) -> list[tuple[str, int | str, bool]]:
    failed = sum(stack.endings.get(kind, 0) for stack in report.stacks for kind in FAILURES)
    return [
        ("runs", len(report.runs), False),
        ("void", len(report.void), True),
        ("requests", sum(stack.requests for stack in report.stacks), False),
        ("failed", failed, True),
        *(
            (f"{each.stack}, good/s", f"{each.goodput.per_second:.2f}", False)
            for each in report.stacks
        ),
    ]


def _headline(report: LoadReport) -> Iterator[str]:
    if one := p95_ratios(report).get(HEADLINE):
        yield f"P95 of TTFT, {' over '.join(reversed(list(report.urls)))}: {paired_text(one)}"
    yield from paired_lines(report)
    for stack in report.stacks:
        yield f"{stack.stack}: {stack_line(stack)}"


def worst_p95(metric: MetricSummary) -> str:
    """Write P95 if every request without a value had been slower than all others."""
    worst = metric.with_excluded[SHOWN.index(COMPARED)]
    return "P95 unbounded" if worst is None else f"P95 ≤ {milliseconds(worst)}"


def good_share(stack: StackSummary) -> str:
    """Write the interval of the share of good requests."""
    good = stack.goodput
    return _between(good.good, good.requests) if good.requests else ""


def _between(hits: int, trials: int) -> str:
    low, high = share_interval(hits, trials)
    return f"{percent(low)} … {percent(high)}"


def _distributions(report: LoadReport, rows: Sequence[LoadRow]) -> Iterator[Chart]:
    for metric in (METRICS[name] for name in DISTRIBUTIONS):
        samples = {}
        for stack in report.urls:
            own = [row for row in rows if row.stack == stack and row.measured]
            values = sorted(1_000 * value for value in metric.sample(own))
            samples[stack] = Sample(values, len(own))
        yield cumulative(metric.title, samples, note="share of requests at or below", x_unit="ms")


def _course(report: LoadReport, rows: Sequence[LoadRow]) -> Iterator[Chart]:
    """Draw the runs of each stack laid over each other, in bins of equal width from their start."""
    width = max(report.seconds / MOST_BINS, LEAST_BIN)
    first, lag = METRICS[HEADLINE], METRICS["lag"]
    table = DataFrame(
        [
            (
                row.stack,
                row.run,
                row.scheduled / SECOND,
                row.ended / SECOND,
                _milliseconds(first, row),
                _milliseconds(lag, row),
                is_good(row, report.objectives),
                row.ending in FAILURES,
            )
            for row in rows
        ],
        columns=["stack", "run", "due", "open", "first", "lag", "good", "failed"],
    )
    table["due"] -= table.groupby("run")["due"].transform("min")
    table["bin"] = (table["due"] // width).astype(int)
    bins = table.groupby(["stack", "bin"])
    seconds = width * table.groupby("stack")["run"].nunique()

    def drawn(title: str, note: str, values: Series[float]) -> Chart:
        stacks = values.index.get_level_values("stack")
        points = {stack: _points(values[stacks == stack].dropna(), width) for stack in report.urls}
        return lines(title, points, note=note, x_unit="s")

    def rate(counts: Series[int] | Series[float]) -> Series[float]:
        return counts.div(seconds, level="stack")

    yield drawn(f"P95 of {first.title}", "milliseconds, by due moment", bins["first"].agg(_p95))
    yield drawn("Open streams", "mean number under way", rate(_open_seconds(table, width)))
    yield drawn("Requests", "due a second", rate(bins.size()))
    yield drawn("Goodput", "good requests a second", rate(bins["good"].sum()))
    yield drawn("Failures", "failed requests a second", rate(bins["failed"].sum()))
    yield drawn(f"P95 of {lag.title}", "milliseconds late at sending", bins["lag"].agg(_p95))


def _points(values: Series[float], width: float) -> list[Point]:
    """Return the values of bins, each at its bin's middle."""
    middles = (values.index.get_level_values("bin").to_numpy() + 0.5) * width
    return list(zip(middles.tolist(), values.tolist(), strict=True))


def _milliseconds(metric: Metric, row: LoadRow) -> float | None:
    value = metric.of(row) if metric.counts(row) else None
    return None if value is None else 1_000 * value


def _p95(values: Series[float]) -> float:
    known = sorted(values.dropna())
    return percentile(known, COMPARED) if known else nan


def _open_seconds(table: DataFrame, width: float) -> Series[float]:
    """Return how many seconds of streams lie in each bin: one that spans bins counts in each."""
    ends = table["due"] + table["open"]
    spans = zip(table["bin"], (ends // width).astype(int), strict=True)
    touched = Series([range(first, last + 1) for first, last in spans], table.index, dtype=object)
    parts = table.assign(end=ends, bin=touched)
    parts = parts.explode("bin").astype({"bin": int})
    begin = parts["bin"] * width
    inside = parts["end"].clip(upper=begin + width) - parts["due"].clip(lower=begin)
    return inside.groupby([parts["stack"], parts["bin"]]).sum()


def _endings(stacks: Sequence[StackSummary]) -> Iterator[EndingLine]:
    def line(kind: str, code: str, numbers: Sequence[int]) -> EndingLine:
        cells = []
        for number, stack in zip(numbers, stacks, strict=True):
            share = percent(number / stack.requests) if stack.requests else ""
            cells.append((number, share, _between(number, stack.requests) if share else ""))
        return EndingLine(kind, code, cells)

    for kind in dict.fromkeys(kind for stack in stacks for kind in stack.endings):
        yield line(kind, "", [stack.endings.get(kind, 0) for stack in stacks])
        for word in dict.fromkeys(code for stack in stacks for code in stack.codes):
            if word.partition(" ")[0] == kind:
                numbers = [stack.codes.get(word, 0) for stack in stacks]
                yield line(kind, word.partition(" ")[2], numbers)
