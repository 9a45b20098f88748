"""Two stacks side by side: percentiles of each, exclusions, and the difference by pairs of runs.

Requests of one run share its queue and its machine, so a run counts as one observation: the
statistic is the paired difference of log P95, its interval Student's t over the pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import exp, inf, isfinite, log, sqrt
from statistics import fmean, stdev

import msgspec

from evidence import CONFIDENCE, PercentileEstimate, percentile, percentiles
from loadtests.metrics import METRICS, Goodput, Metric, Objective, critical, goodput
from loadtests.plan import PAIRS_FOR_A_STATEMENT, PlannedRun
from loadtests.rows import LoadRow

SHOWN = (0.50, 0.95, 0.99)
COMPARED = 0.95


class MetricSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one stack, seconds, from the scheduled moment.

    `n` requests have a value, `excluded` have none (the generator's own cancellations are in
    neither). `with_excluded` are the same percentiles if every excluded request had been slower
    than all others; None where the percentile falls among those.
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


RunRows = Sequence[tuple[PlannedRun, Sequence[LoadRow]]]


def summarise_metric(metric: Metric, rows: Sequence[LoadRow]) -> MetricSummary:
    """Sum one metric up over the rows of one stack."""
    wanted = [row for row in rows if row.ending != "cancelled"]
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
    differences = [
        log(candidate[pair]) - log(control[pair])
        for pair in shared
        if candidate[pair] > 0 and control[pair] > 0
    ]
    if not differences:
        return Paired(metric=metric.name, pairs=0, reason="a P95 is 0")
    ratio = exp(fmean(differences))
    if len(differences) == 1:
        return Paired(metric=metric.name, pairs=1, ratio=ratio, reason="one pair has no spread")
    reach = critical(CONFIDENCE, len(differences) - 1) * stdev(differences)
    reach /= sqrt(len(differences))
    few = len(differences) < PAIRS_FOR_A_STATEMENT
    return Paired(
        metric=metric.name,
        pairs=len(differences),
        ratio=ratio,
        low=ratio * exp(-min(reach, 700.0)),
        high=ratio * exp(min(reach, 700.0)),
        reason=f"fewer than {PAIRS_FOR_A_STATEMENT} pairs: no statement" if few else "",
    )


def _p95s(metric: Metric, stack: str, runs: RunRows) -> dict[int, float]:
    found: dict[int, float] = {}
    for run, rows in runs:
        values = sorted(metric.sample(rows)) if run.stack == stack else []
        if values:
            found[run.pair] = percentile(values, COMPARED)
    return found
