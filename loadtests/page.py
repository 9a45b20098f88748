"""The page of a load report: percentiles, distributions, the course of a run, endings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

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


class _Course:
    """The runs of one stack laid over each other, in bins of `width` seconds from their start."""

    def __init__(self, rows: Sequence[LoadRow], width: float) -> None:
        self.width = width
        starts: dict[int, int] = {}
        for row in rows:
            starts[row.run] = min(row.scheduled, starts.get(row.run, row.scheduled))
        self.runs = max(len(starts), 1)
        self._bins: defaultdict[int, list[LoadRow]] = defaultdict(list)
        self._open: Counter[int] = Counter()
        for row in rows:
            at = (row.scheduled - starts[row.run]) / SECOND
            self._bins[int(at / width)].append(row)
            for place in range(int(at / width), int((at + row.ended / SECOND) / width) + 1):
                begin, end = place * width, (place + 1) * width
                covered = min(at + row.ended / SECOND, end) - max(at, begin)
                self._open[place] += int(covered * 1_000)

    def points(self, value: Callable[[Sequence[LoadRow]], float | None]) -> list[Point]:
        """Return a value of the requests due in each bin, at its middle; empty bins have none."""
        found = ((place, value(rows)) for place, rows in sorted(self._bins.items()))
        return [(self._middle(place), each) for place, each in found if each is not None]

    def rate(self, counts: Callable[[LoadRow], bool]) -> list[Point]:
        """Return how many of the requests due in each bin count, a second and run."""
        seconds = self.width * self.runs
        return self.points(lambda rows: sum(map(counts, rows)) / seconds)

    def open_streams(self) -> list[Point]:
        """Return the mean number of streams under way in each bin."""
        seconds = 1_000 * self.width * self.runs
        return [(self._middle(place), ms / seconds) for place, ms in sorted(self._open.items())]

    def _middle(self, place: int) -> float:
        return (place + 0.5) * self.width


def _course(report: LoadReport, rows: Sequence[LoadRow]) -> Iterator[Chart]:
    width = max(report.seconds / MOST_BINS, LEAST_BIN)
    courses = {
        stack: _Course([row for row in rows if row.stack == stack], width) for stack in report.urls
    }

    def drawn(title: str, note: str, points: Callable[[_Course], Sequence[Point]]) -> Chart:
        series = {stack: points(course) for stack, course in courses.items()}
        return lines(title, series, note=note, x_unit="s")

    def p95(metric: Metric) -> Callable[[_Course], Sequence[Point]]:
        def of_bin(rows: Sequence[LoadRow]) -> float | None:
            values = sorted(metric.sample(rows))
            return 1_000 * percentile(values, COMPARED) if values else None

        return lambda course: course.points(of_bin)

    first, lag = METRICS[HEADLINE], METRICS["lag"]
    yield drawn(f"P95 of {first.title}", "milliseconds, by due moment", p95(first))
    yield drawn("Open streams", "mean number under way", lambda c: c.open_streams())
    yield drawn("Requests", "due a second", lambda c: c.rate(lambda _: True))
    yield drawn(
        "Goodput",
        "good requests a second",
        lambda c: c.rate(lambda r: is_good(r, report.objectives)),
    )
    yield drawn("Failures", "failed requests a second", lambda c: c.rate(_failed))
    yield drawn(f"P95 of {lag.title}", "milliseconds late at sending", p95(lag))


def _failed(row: LoadRow) -> bool:
    return row.ending in FAILURES


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
