"""The report of a load run: everything its figures rest on as one value, and its lines of text.

Requests of one run share its queue and its machine, so a run counts as one observation: stacks are
compared by the paired differences of log percentiles, of failure rates and of goodput, each with
Student's t over the pairs.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf, isfinite
from typing import Literal, TypeVar

import msgspec
import numpy as np

from evidence.intervals import (
    CONFIDENCE,
    PercentileEstimate,
    Sample,
    design_effect,
    difference_interval,
    percentile,
    percentiles,
)
from evidence.tests import paired_difference, paired_mean
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

VERSION = 2
SHOWN = (0.50, 0.95, 0.99)
COMPARED = 0.95
"""The percentile whose ratio is shown beside each metric."""
FAILURE_RATE = "failures"
GOODPUT = "goodput"
"""What is compared beside the percentiles of metrics."""
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
    question put to the user, or nothing at all. `code` are the fingerprints of its code that a
    router named in its answers; a service asked directly names none.
    """

    stack: str
    requests: int
    endings: Mapping[str, int]
    codes: Mapping[str, int]
    served_elsewhere: int
    wordless: int = 0
    code: tuple[str, ...] = ()
    goodput: Goodput
    metrics: tuple[MetricSummary, ...]


class Paired(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the candidate beside the control's, over pairs of runs, with its interval.

    `figure` is `p50`, `p95` or `p99` of a metric: `value` is the candidate's over the control's,
    the geometric mean over pairs. Of the metric `goodput` (`rate`) it is good requests a second,
    the candidate's over the control's; of `failures` (`share`) the candidate's share of requests
    that failed, or that another stack had to serve, minus the control's. `p` is the two-sided
    p-value of stacks that are equal.

    `value` None: cannot tell, `reason` says why. A reason beside a value limits what it is worth.
    """

    metric: str
    figure: Literal["p50", "p95", "p99", "rate", "share"]
    pairs: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
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
    `broken_off` says that `runs`, of `planned`, ended before their time; `ended` is when the last
    one did, in seconds since the epoch.
    """

    v: int
    ended: float
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
    lost: Sequence[str] = ()
    """Workers on other machines that were lost, and why."""


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
        code=tuple(sorted({code for row in rows if (code := _code(row, stack))})),
        goodput=goodput(own, objectives),
        metrics=tuple(summarise_metric(metric, rows) for metric in METRICS.values()),
    )


def served_by(row: LoadRow) -> str:
    """Stack that served a request: the response's header, else the one requested."""
    return (row.labels.get("served") or row.stack).split()[0]


def _code(row: LoadRow, stack: str) -> str:
    """Return the fingerprint of a stack's code where the response names that, else ""."""
    served, _, code = row.labels.get("served", "").partition(" ")
    return code if served == stack else ""


def compare_pairs(
    metric: Metric, stacks: tuple[str, str], runs: RunRows, p: float = COMPARED
) -> Paired:
    """Compare control and candidate (in this order) by a percentile of the runs of each pair."""
    figure = _PERCENTILES[p]
    control, candidate = (_percentiles(metric, stack, runs, p) for stack in stacks)
    shared = sorted(control.keys() & candidate.keys())
    if not shared:
        reason = "no pair has values on both sides"
        return Paired(metric=metric.name, figure=figure, pairs=0, reason=reason)
    usable = [pair for pair in shared if candidate[pair] > 0 and control[pair] > 0]
    if not usable:
        reason = f"a {figure.upper()} is 0"
        return Paired(metric=metric.name, figure=figure, pairs=0, reason=reason)
    if len(usable) == 1:
        ratio = candidate[usable[0]] / control[usable[0]]
        reason = "one pair has no spread"
        return Paired(metric=metric.name, figure=figure, pairs=1, value=ratio, reason=reason)
    found = paired_mean([control[pair] for pair in usable], [candidate[pair] for pair in usable])
    return Paired(
        metric=metric.name,
        figure=figure,
        pairs=len(usable),
        value=found.value,
        low=found.low,
        high=found.high,
        p=found.p,
        reason=_few(len(usable)),
    )


_PERCENTILES: Mapping[float, Literal["p50", "p95", "p99"]] = {0.50: "p50", 0.95: "p95", 0.99: "p99"}


def _few(pairs: int) -> str:
    few = pairs < PAIRS_FOR_A_STATEMENT
    return f"fewer than {PAIRS_FOR_A_STATEMENT} pairs: no statement" if few else ""


def _percentiles(metric: Metric, stack: str, runs: RunRows, p: float) -> dict[int, float]:
    found: dict[int, float] = {}
    for run, rows in runs:
        values = sorted(metric.sample(rows)) if run.stack == stack else []
        if values:
            found[run.pair] = percentile(values, p)
    return found


def compare_failures(stacks: tuple[str, str], runs: RunRows) -> Paired:
    """Compare control and candidate by the share of requests that did not get their own answer.

    The interval is the wider one of Student's t over the pairs and Newcombe's over the requests,
    of which runs are clusters: five runs without a failure are no proof that none comes.
    """
    sides = [_by_pair(stack, runs, _failures) for stack in stacks]
    shared = sorted(pair for pair in sides[0].keys() & sides[1].keys())
    shared = [pair for pair in shared if all(len(side[pair]) for side in sides)]
    paired = Paired(metric=FAILURE_RATE, figure="share", pairs=len(shared))
    if len(shared) < 2:  # noqa: PLR2004
        return msgspec.structs.replace(paired, reason="fewer than two pairs have requests")
    shares = [[sum(side[pair]) / len(side[pair]) for pair in shared] for side in sides]
    found = paired_difference(*shares)
    hits, trials = zip(
        *(_effective([side[pair] for pair in shared]) for side in sides), strict=True
    )
    low, high = difference_interval(hits, trials)
    return msgspec.structs.replace(
        paired,
        value=found.value,
        low=min(found.low, low),
        high=max(found.high, high),
        p=found.p,
        reason=_few(len(shared)),
    )


def _failures(rows: Sequence[LoadRow]) -> list[bool]:
    counted = (row for row in rows if row.ending != "cancelled")
    return [row.ending in FAILURES or served_by(row) != row.stack for row in counted]


def _effective(runs: Sequence[Sequence[bool]]) -> tuple[float, float]:
    """Return failures and requests, as many as independent ones would tell as much."""
    values = np.array([value for run in runs for value in run], dtype=float)
    owners = np.repeat(np.arange(len(runs)), [len(run) for run in runs])
    less = design_effect(Sample(values, owners))
    return float(values.sum()) / less, len(values) / less


def compare_goodput(
    stacks: tuple[str, str], runs: RunRows, objectives: Sequence[Objective]
) -> Paired:
    """Compare control and candidate by good requests a second.

    The differences of the pairs, of which a goodput may be 0, are divided by the control's mean.
    """
    control, candidate = (
        _by_pair(stack, runs, lambda rows: goodput([rows], objectives).per_second)
        for stack in stacks
    )
    shared = sorted(control.keys() & candidate.keys())
    paired = Paired(metric=GOODPUT, figure="rate", pairs=len(shared))
    if len(shared) < 2:  # noqa: PLR2004
        return msgspec.structs.replace(paired, reason="fewer than two pairs")
    found = paired_difference([control[one] for one in shared], [candidate[one] for one in shared])
    mean = sum(control[one] for one in shared) / len(shared)
    if not mean:
        return msgspec.structs.replace(paired, reason=f"{stacks[0]} has no good request")
    return msgspec.structs.replace(
        paired,
        value=1 + found.value / mean,
        low=1 + found.low / mean,
        high=1 + found.high / mean,
        p=found.p,
        reason=_few(len(shared)),
    )


Found = TypeVar("Found")


def _by_pair(
    stack: str, runs: RunRows, of: Callable[[Sequence[LoadRow]], Found]
) -> dict[int, Found]:
    return {run.pair: of(rows) for run, rows in runs if run.stack == stack}


def _every_comparison(
    stacks: tuple[str, str], runs: RunRows, objectives: Sequence[Objective]
) -> Iterator[Paired]:
    for metric in METRICS.values():
        if metric.name != "lag":
            yield from (compare_pairs(metric, stacks, runs, p) for p in SHOWN)
    yield compare_failures(stacks, runs)
    yield compare_goodput(stacks, runs, objectives)


def summarise_run(finished: FinishedRun, plan: LoadPlan) -> RunSummary:
    """Sum one run up and say whether it counts."""
    rows = finished.rows
    lags = sorted(METRICS["lag"].of(row) or 0.0 for row in rows)
    late = percentile(lags, LAG_PERCENTILE) if lags else None
    unreachable = bool(rows) and all(row.ending == "unreachable" for row in rows)
    busiest = max((generator.share for generator in finished.generators), default=0.0)
    void = (
        BROKEN_OFF if finished.broken_off else "",
        *(f"{lost}: its part of the load is missing" for lost in finished.lost),
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


def load_report(plan: LoadPlan, finished: Sequence[FinishedRun], ended: float) -> LoadReport:
    """Sum all runs up, the last of which ended at a Unix time in seconds."""
    runs = tuple(summarise_run(run, plan) for run in finished)
    every: RunRows = [(run.planned, run.rows) for run in finished]
    valid = [pair for pair, summary in zip(every, runs, strict=True) if not summary.void]
    planned = plan.pairs * len(plan.targets)
    conclusive = {run.stack for run, _ in valid} == set(plan.stacks)
    return LoadReport(
        v=VERSION,
        ended=ended,
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
            paired
            for stacks in pairwise(plan.stacks)
            if conclusive
            for paired in _every_comparison(stacks, valid, plan.objectives)
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


def p95_ratios(report: LoadReport) -> Mapping[str, Paired]:
    """Return the comparisons of P95, by metric."""
    return {one.metric: one for one in report.paired if one.figure == _PERCENTILES[COMPARED]}


def paired_lines(report: LoadReport) -> Iterator[str]:
    """Write how failures and goodput of the stacks compare."""
    names = list(report.urls)
    for one in report.paired:
        if one.metric == GOODPUT:
            yield f"goodput, {' over '.join(reversed(names))}: {paired_text(one)}"
        elif one.metric == FAILURE_RATE:
            yield f"failures, {' minus '.join(reversed(names))}: {paired_text(one)}"


def metric_lines(report: LoadReport) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each metric and stack; the title on its first line, the ratio after."""
    paired = p95_ratios(report)
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
    """Write a ratio of P95s with its interval, and what limits it; nothing where there is none."""
    return "" if paired is None else paired_text(paired)


def paired_text(paired: Paired) -> str:
    """Write a ratio, or a difference in points, with its interval and what limits it."""
    if paired.value is None:
        return f"cannot tell: {paired.reason}"

    def written(value: float) -> str:
        return f"{100 * value:+.2f}" if paired.figure == "share" else f"{value:.3f}"

    between = (
        f" [{written(paired.low)}, {written(paired.high)}]"
        if paired.low is not None and paired.high is not None
        else ""
    )
    value = written(paired.value)
    figure = f"{value} points" if paired.figure == "share" else f"×{value}"
    return f"{figure}{between}" + (f" ({paired.reason})" if paired.reason else "")


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
