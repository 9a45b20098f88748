"""The report of a load run: everything its figures rest on as one value, and its lines of text.

Requests of one run share its queue and its machine, so a run counts as one observation: stacks are
compared by the paired difference of log P95, its interval Student's t over the pairs.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf, isfinite
from typing import Literal

import msgspec

from evidence.intervals import CONFIDENCE, PercentileEstimate, percentile, percentiles
from evidence.tests import paired_mean
from loadtests.arrivals import Cancellations, Shape
from loadtests.metrics import (
    CLOCK,
    INTERVAL,
    METHOD,
    METRICS,
    Goodput,
    Metric,
    Objective,
    goodput,
    window,
)
from loadtests.plan import PAIRS_FOR_A_STATEMENT, Engine, LoadPlan, PlannedRun
from loadtests.rows import BUSIEST, FAILURES, MOST_BUSY_MACHINE, GeneratorLoad, LoadRow

VERSION = 1
SHOWN = (0.50, 0.95, 0.99)
COMPARED = 0.95
LAG_PERCENTILE = 0.99
BROKEN_OFF = "broken off: its slowest streams are not in it"


NO_DATA = "no data"
HEADS = ("metric", "stack", *(f"P{p * 100:.0f}" for p in SHOWN), "n", "excluded", "P95 ratio")
"""Of the columns of `metric_lines`."""
DECIMALS_BELOW = 100


class MetricSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one stack, seconds, from the scheduled moment.

    `n` requests have a value, `excluded` have none (the generator's own cancellations, and clients
    that were to leave, are in neither). `with_excluded` are the same percentiles if every
    excluded request had been slower than all others; None where the percentile falls among those.
    """

    name: str
    title: str
    n: int
    excluded: int
    percentiles: tuple[PercentileEstimate, ...]
    with_excluded: tuple[float | None, ...]


class StackSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One stack over all its runs.

    `served_elsewhere` counts answers another stack gave, `wordless` complete ones without text: a
    question put to the user, or nothing at all.
    """

    stack: str
    requests: int
    endings: Mapping[str, int]
    codes: Mapping[str, int]
    served_elsewhere: int
    wordless: int = 0
    goodput: Goodput
    metrics: tuple[MetricSummary, ...]


class Paired(msgspec.Struct, frozen=True, kw_only=True):
    """P95 of the candidate over the control's: geometric mean over pairs, with its interval.

    `ratio` None: cannot tell, `reason` says why. A reason beside a ratio limits what it is worth.
    """

    metric: str
    pairs: int
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""


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
    arrivals: Literal["closed loop", "poisson", "constant", "trace"] = "poisson"
    shape: Shape = "flat"
    workers: int = 1
    cancellations: Cancellations = Cancellations()
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


RunRows = Sequence[tuple[PlannedRun, Sequence[LoadRow]]]


def summarise_metric(metric: Metric, rows: Sequence[LoadRow]) -> MetricSummary:
    """Sum one metric up over the rows of one stack."""
    wanted = [row for row in rows if row.measured]
    values = metric.sample(wanted)
    excluded = len(wanted) - len(values)
    worst = sorted([*values, *[inf] * excluded])
    return MetricSummary(
        name=metric.name,
        title=metric.title,
        n=len(values),
        excluded=excluded,
        percentiles=percentiles(values, SHOWN),
        with_excluded=tuple(_finite(percentile(worst, p)) if worst else None for p in SHOWN),
    )


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def summarise_stack(stack: str, runs: RunRows, objectives: Sequence[Objective]) -> StackSummary:
    """Sum up all runs of one stack."""
    own = [rows for run, rows in runs if run.stack == stack]
    rows = [row for part in own for row in part]
    return StackSummary(
        stack=stack,
        requests=len(rows),
        endings=dict(Counter(row.ending for row in rows).most_common()),
        codes=dict(Counter(f"{row.ending} {row.code}" for row in rows if row.code).most_common()),
        served_elsewhere=sum(served_by(row) != stack for row in rows),
        wordless=sum(row.ending == "complete" and not row.contents for row in rows),
        goodput=goodput(own, objectives),
        metrics=tuple(summarise_metric(metric, rows) for metric in METRICS.values()),
    )


def served_by(row: LoadRow) -> str:
    """Stack that served a request: the response's header, else the one requested."""
    return (row.labels.get("served") or row.stack).split()[0]


def compare_pairs(metric: Metric, stacks: tuple[str, str], runs: RunRows) -> Paired:
    """Compare control and candidate (in this order) by the P95 of the runs of each pair."""
    control, candidate = (_p95s(metric, stack, runs) for stack in stacks)
    shared = sorted(control.keys() & candidate.keys())
    if not shared:
        return Paired(metric=metric.name, pairs=0, reason="no pair has values on both sides")
    usable = [pair for pair in shared if candidate[pair] > 0 and control[pair] > 0]
    if not usable:
        return Paired(metric=metric.name, pairs=0, reason="a P95 is 0")
    if len(usable) == 1:
        ratio = candidate[usable[0]] / control[usable[0]]
        return Paired(metric=metric.name, pairs=1, ratio=ratio, reason="one pair has no spread")
    found = paired_mean([control[pair] for pair in usable], [candidate[pair] for pair in usable])
    few = len(usable) < PAIRS_FOR_A_STATEMENT
    return Paired(
        metric=metric.name,
        pairs=len(usable),
        ratio=found.value,
        low=found.low,
        high=found.high,
        reason=f"fewer than {PAIRS_FOR_A_STATEMENT} pairs: no statement" if few else "",
    )


def _p95s(metric: Metric, stack: str, runs: RunRows) -> dict[int, float]:
    found: dict[int, float] = {}
    for run, rows in runs:
        values = sorted(metric.sample(rows)) if run.stack == stack else []
        if values:
            found[run.pair] = percentile(values, COMPARED)
    return found


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
        seconds=max(run.window for run in runs) if plan.ui else plan.seconds,
        seed=plan.seed,
        clock=CLOCK,
        method=METHOD,
        interval=INTERVAL,
        confidence=CONFIDENCE,
        objectives=plan.objectives,
        arrivals=_arrivals(plan),
        shape=plan.shape,
        workers=plan.workers,
        cancellations=plan.cancellations,
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


def _arrivals(plan: LoadPlan) -> Literal["closed loop", "poisson", "constant", "trace"]:
    if plan.engine == "locust":
        return "closed loop"
    return "trace" if plan.trace else plan.arrivals


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
    cancelled, left = (stack.endings.get(kind, 0) for kind in ("cancelled", "left"))
    good = stack.goodput
    return (
        f"{stack.requests} requests, {failed} failed"
        + (f" ({kinds})" if kinds else "")
        + (f", {stack.wordless} complete without words" if stack.wordless else "")
        + (f", {left} left by their client" if left else "")
        + (f", {cancelled} given up by the generator" if cancelled else "")
        + (f", {stack.served_elsewhere} served elsewhere" if stack.served_elsewhere else "")
        + f"; {good.per_second:.2f} good requests/s ({good.good} of {good.requests})"
    )


def load_line(report: LoadReport) -> str:
    """Write how much load there was, in which runs."""
    load = f"{report.users} users" if report.rate is None else f"{report.rate:.4g} requests/s"
    cancelled = report.cancellations
    return (
        f"{load}"
        + ("" if report.shape == "flat" else f" at the peak of shape {report.shape}")
        + f" ({report.engine}, {report.arrivals}"
        + (f", {report.workers} workers" if report.workers > 1 else "")
        + f"), {len(report.runs)} runs of {report.seconds:g} s"
        + (
            f", {cancelled.share:.0%} of the clients leave within {cancelled.within:g} s"
            if cancelled.share
            else ""
        )
        + f", order drawn with seed {report.seed}"
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
    compared = (
        f" Ratios: P95 of {ratio} by pairs of runs, Student's t on logarithms."
        if len(report.urls) > 1
        else ""
    )
    return (
        f"Milliseconds from the {report.clock} moment. Percentiles: {report.method}; "
        f"{report.confidence:.0%} intervals: {report.interval}." + compared
    )
