"""How figures of a load report are written, on a terminal and on a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from loadtests.comparison import SHOWN, MetricSummary, Paired, StackSummary
from loadtests.report import BROKEN_OFF
from loadtests.rows import FAILURES

if TYPE_CHECKING:
    from loadtests.report import LoadReport

NO_DATA = "no data"
DECIMALS_BELOW = 100


def milliseconds(seconds: float | None) -> str:
    """Write a time; one decimal below 100 ms."""
    if seconds is None:
        return "?"
    value = seconds * 1_000
    return f"{value:.1f}" if value < DECIMALS_BELOW else f"{value:.0f}"


def percentile_cell(metric: MetricSummary, place: int) -> str:
    """Write one percentile with its interval, `?` for an end nobody can tell."""
    if not metric.percentiles:
        return NO_DATA
    found = metric.percentiles[place]
    return f"{milliseconds(found.value)} [{milliseconds(found.low)}, {milliseconds(found.high)}]"


def excluded_cell(metric: MetricSummary) -> str:
    """Write how many requests have no value, and what that does to P95 at worst."""
    if not metric.excluded:
        return "0"
    worst = metric.with_excluded[SHOWN.index(0.95)]
    return (
        f"{metric.excluded} (P95 at worst {'unbounded' if worst is None else milliseconds(worst)})"
    )


def paired_cell(paired: Paired | None) -> str:
    """Write a ratio of P95s with its interval, and what limits it."""
    if paired is None:
        return ""
    if paired.ratio is None:
        return f"cannot tell: {paired.reason}"
    between = (
        f" [{paired.low:.3f}, {paired.high:.3f}]"
        if paired.low is not None and paired.high is not None
        else ""
    )
    return f"×{paired.ratio:.3f}{between}" + (f" ({paired.reason})" if paired.reason else "")


def failures_line(stack: StackSummary) -> str:
    """Write a stack's failures by kind; what came without words and cancellations apart."""
    counts = {ending: stack.endings.get(ending, 0) for ending in FAILURES}
    failed = sum(counts.values())
    kinds = ", ".join(f"{number} {ending}" for ending, number in counts.items() if number)
    cancelled = stack.endings.get("cancelled", 0)
    return (
        f"{stack.requests} requests, {failed} failed"
        + (f" ({kinds})" if kinds else "")
        + (f", {stack.wordless} complete without words" if stack.wordless else "")
        + (f", {cancelled} given up by the generator" if cancelled else "")
        + (f", {stack.served_elsewhere} served elsewhere" if stack.served_elsewhere else "")
    )


def goodput_line(stack: StackSummary) -> str:
    """Write a stack's goodput."""
    good = stack.goodput
    return f"{good.per_second:.2f} good requests/s ({good.good} of {good.requests})"


def objectives_line(report: LoadReport) -> str:
    """Write what a good request is."""
    limits = [f"{one.metric} ≤ {one.seconds:g} s" for one in report.objectives]
    return "good: complete, " + ", ".join(limits)


def void_lines(report: LoadReport) -> Sequence[str]:
    """Write whether the load was broken off, which runs are void and why."""
    whole = sum(BROKEN_OFF not in run.void for run in report.runs)
    lines = [f"Broken off: {whole} of {report.planned} runs are whole."]
    lines = lines if report.broken_off else []
    lines += [f"run {run.run} ({run.stack}) is void: {'; '.join(run.void)}" for run in report.void]
    if report.basis == "void":
        lines.append("A stack has no valid run: figures to look at, not to conclude from.")
    return lines


def method_line(report: LoadReport) -> str:
    """Write how the figures were made."""
    return (
        f"Milliseconds from the {report.clock} moment. Percentiles: {report.method}; "
        f"{report.confidence:.0%} intervals: {report.interval}. Ratios: P95 of {_ratio(report)} by "
        "pairs of runs, Student's t on logarithms."
    )


def _ratio(report: LoadReport) -> str:
    return " over ".join(reversed(list(report.urls)))
