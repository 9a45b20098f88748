"""The report of a load run: everything its figures rest on as one value, and its lines of text."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from evidence import CONFIDENCE, percentile
from loadtests.comparison import (
    SHOWN,
    MetricSummary,
    Paired,
    RunRows,
    StackSummary,
    compare_pairs,
    summarise_stack,
)
from loadtests.metrics import CLOCK, INTERVAL, METHOD, METRICS, Objective, window
from loadtests.plan import Engine, LoadPlan, PlannedRun
from loadtests.rows import BUSIEST, FAILURES, MOST_BUSY_MACHINE, GeneratorLoad, LoadRow

VERSION = 1
LAG_PERCENTILE = 0.99
BROKEN_OFF = "broken off: its slowest streams are not in it"


NO_DATA = "no data"
HEADS = ("metric", "stack", *(f"P{p * 100:.0f}" for p in SHOWN), "n", "excluded", "P95 ratio")
"""Of the columns of `metric_lines`."""
DECIMALS_BELOW = 100


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One run: how long it took in seconds, how late it sent, how busy things were, why it is void.

    `generator_cpu` is the busiest generator's share of one CPU, `machine_cpu` the share of all.
    """

    run: int
    pair: int
    stack: str
    requests: int
    window: float
    lag_p99: float | None
    generator_cpu: float
    machine_cpu: float | None
    void: tuple[str, ...]


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What two stacks did under the same load; times in seconds, counted from `clock`.

    The sums in `stacks` and `paired` are over the runs that are not void. If a stack has none of
    those left, `basis` is `void`: `stacks` sums up all runs, to look at, and `paired` is empty.
    `broken_off` says that `runs`, of `planned`, ended before their time.
    """

    v: int
    flow: str
    engine: Engine
    urls: dict[str, str]
    users: int
    rate: float | None
    seconds: float
    seed: int
    clock: str
    method: str
    interval: str
    confidence: float
    objectives: tuple[Objective, ...]
    cpus: int
    planned: int
    broken_off: bool
    runs: tuple[RunSummary, ...]
    basis: Literal["valid", "void"]
    stacks: tuple[StackSummary, ...]
    paired: tuple[Paired, ...]

    @property
    def counted(self) -> frozenset[int]:
        """Numbers of the runs the sums are over."""
        void = {run.run for run in self.void} if self.basis == "valid" else set[int]()
        return frozenset(run.run for run in self.runs if run.run not in void)

    @property
    def void(self) -> tuple[RunSummary, ...]:
        """Runs nothing may be concluded from."""
        return tuple(run for run in self.runs if run.void)


class FinishedRun(msgspec.Struct, frozen=True):
    """One run as it came from its engine."""

    planned: PlannedRun
    rows: Sequence[LoadRow]
    generators: Sequence[GeneratorLoad]
    machine_cpu: float | None
    broken_off: bool = False


def summarise_run(finished: FinishedRun, plan: LoadPlan) -> RunSummary:
    """Sum one run up and say whether it counts."""
    rows = finished.rows
    lags = sorted(METRICS["lag"].of(row) or 0.0 for row in rows)
    late = percentile(lags, LAG_PERCENTILE) if lags else None
    unreachable = bool(rows) and all(row.ending == "unreachable" for row in rows)
    busiest = max((generator.share for generator in finished.generators), default=0.0)
    void = (
        BROKEN_OFF if finished.broken_off else "",
        "no request was sent" if not rows else "",
        "no server answers there" if unreachable else "",
        f"sent {late:.3f} s late at P99" if late is not None and late > plan.lag else "",
        f"the generator used {busiest:.0%} of a CPU" if busiest > BUSIEST else "",
        f"the machine was {finished.machine_cpu:.0%} busy"
        if finished.machine_cpu is not None and finished.machine_cpu > MOST_BUSY_MACHINE
        else "",
    )
    return RunSummary(
        run=finished.planned.run,
        pair=finished.planned.pair,
        stack=finished.planned.stack,
        requests=len(rows),
        window=window(rows),
        lag_p99=late,
        generator_cpu=busiest,
        machine_cpu=finished.machine_cpu,
        void=tuple(filter(None, void)),
    )


def load_report(plan: LoadPlan, finished: Sequence[FinishedRun]) -> LoadReport:
    """Sum all runs up."""
    runs = tuple(summarise_run(run, plan) for run in finished)
    every: RunRows = [(run.planned, run.rows) for run in finished]
    valid = [pair for pair, summary in zip(every, runs, strict=True) if not summary.void]
    planned = plan.pairs * len(plan.targets)
    conclusive = {run.stack for run, _ in valid} == set(plan.stacks)
    return LoadReport(
        v=VERSION,
        flow=plan.flow,
        engine=plan.engine,
        urls={target.stack: target.url for target in plan.targets},
        users=plan.users,
        rate=plan.requests_per_second if plan.engine == "open" else None,
        seconds=plan.seconds,
        seed=plan.seed,
        clock=CLOCK,
        method=METHOD,
        interval=INTERVAL,
        confidence=CONFIDENCE,
        objectives=plan.objectives,
        cpus=os.cpu_count() or 1,
        planned=planned,
        broken_off=len(runs) < planned or any(run.broken_off for run in finished),
        runs=runs,
        basis="valid" if conclusive else "void",
        stacks=tuple(
            summarise_stack(stack, valid if conclusive else every, plan.objectives)
            for stack in plan.stacks
        ),
        paired=tuple(
            compare_pairs(metric, stacks, valid)
            for stacks in pairwise(plan.stacks)
            for metric in METRICS.values()
            if conclusive and metric.name != "lag"
        ),
    )


def milliseconds(seconds: float | None) -> str:
    """Write a time; one decimal below 100 ms."""
    if seconds is None:
        return "?"
    value = seconds * 1_000
    return f"{value:.1f}" if value < DECIMALS_BELOW else f"{value:.0f}"


def metric_lines(report: LoadReport) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each metric and stack; the title on its first line, the ratio after."""
    paired = {one.metric: one for one in report.paired}
    for metrics in zip(*(stack.metrics for stack in report.stacks), strict=True):
        for number, (stack, metric) in enumerate(zip(report.stacks, metrics, strict=True)):
            yield (
                "" if number else metric.title,
                stack.stack,
                *_percentile_cells(metric),
                str(metric.n),
                excluded_cell(metric),
                paired_cell(paired.get(metric.name)) if number else "",
            )


def _percentile_cells(metric: MetricSummary) -> Sequence[str]:
    """Write percentiles with their intervals, `?` for an unknown end."""
    if not metric.percentiles:
        return [NO_DATA] * len(SHOWN)
    return [
        f"{milliseconds(one.value)} [{milliseconds(one.low)}, {milliseconds(one.high)}]"
        for one in metric.percentiles
    ]


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


def stack_line(stack: StackSummary) -> str:
    """Write a stack's failures by kind, what came without words, cancellations and goodput."""
    counts = {ending: stack.endings.get(ending, 0) for ending in FAILURES}
    failed = sum(counts.values())
    kinds = ", ".join(f"{number} {ending}" for ending, number in counts.items() if number)
    cancelled = stack.endings.get("cancelled", 0)
    good = stack.goodput
    return (
        f"{stack.requests} requests, {failed} failed"
        + (f" ({kinds})" if kinds else "")
        + (f", {stack.wordless} complete without words" if stack.wordless else "")
        + (f", {cancelled} given up by the generator" if cancelled else "")
        + (f", {stack.served_elsewhere} served elsewhere" if stack.served_elsewhere else "")
        + f"; {good.per_second:.2f} good requests/s ({good.good} of {good.requests})"
    )


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
    ratio = " over ".join(reversed(list(report.urls)))
    return (
        f"Milliseconds from the {report.clock} moment. Percentiles: {report.method}; "
        f"{report.confidence:.0%} intervals: {report.interval}. Ratios: P95 of {ratio} by "
        "pairs of runs, Student's t on logarithms."
    )
