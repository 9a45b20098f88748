"""What the rows of a load test say of two stacks: figures, void runs, one verdict.

Latencies count from the moment a request was due and are those of complete requests; what was not
complete is counted beside them. Requests of one run are not independent, runs are: stacks are
compared by the differences of log percentiles within pairs of runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np
import pandas as pd
from scipy import stats

from loadtests.plan import STACKS, PlannedRun
from loadtests.rows import BUSY, Generator, Row

Verdict = Literal["within margins", "slower", "fails more", "cannot tell"]
STATUS: Final[Mapping[Verdict, int]] = {
    "within margins": 0,
    "slower": 1,
    "fails more": 1,
    "cannot tell": 3,
}
METRICS: Final = {"ttft_ms": "TTFT", "ended_ms": "E2E"}
QUANTILES: Final = (0.5, 0.95, 0.99)
DECIDES: Final = 0.95
"""The quantile that the verdict is about, of both metrics."""
CONFIDENCE: Final = 0.95
LATE_MS: Final = 50.0
FEWEST, FEWEST_PAIRS = 20, 3
BOTH_FAIL: Final = 0.1
FAILS_MORE: Final = 0.005
"""The least difference of shares that is reported as one, at P_VALUE (Fisher's exact test)."""
P_VALUE: Final = 0.01


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a test was to be: seconds of a run behind its warm-up, and what is good enough.

    Graph may be slower by `margin` (a share) or `floor_ms`, whichever is more. A request is good
    that is complete, with its first text and no silence beyond `ttft_ms` and `gap_ms`.
    """

    flow: str
    seconds: float
    warm_up: float
    margin: float = 0.1
    floor_ms: float = 50.0
    ttft_ms: float = 2_000.0
    gap_ms: float = 2_000.0


class Figure(msgspec.Struct, frozen=True):
    """A percentile in milliseconds, with its interval: order statistics, which assume nothing."""

    metric: str
    quantile: float
    value: float
    low: float
    high: float


class StackFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one stack did in all sound runs; `goodput` is in requests a second."""

    stack: str
    requests: int
    endings: dict[str, int]
    taken_over: int
    goodput: float
    figures: tuple[Figure, ...]


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """A percentile of graph over legacy's, as pairs of runs show it; `allowed` is the margin."""

    metric: str
    quantile: float
    ratio: float
    low: float
    high: float
    allowed: float
    pairs_needed: int = 0
    """How many pairs would decide, at this spread; 0 where that cannot be said."""


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A run; `void` says why it does not count. `cpu` is the busiest generator's share of one."""

    number: int
    pair: int
    stack: str
    requests: int
    failed: int
    late_ms: float
    cpu: float
    void: str
    p95: dict[str, float]


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a load test found."""

    terms: Terms
    verdict: Verdict
    reasons: tuple[str, ...]
    ratios: tuple[Ratio, ...]
    stacks: tuple[StackFigures, ...]
    runs: tuple[RunFigures, ...]


def load_report(
    rows: Iterable[Row | Generator], plan: Sequence[PlannedRun], terms: Terms
) -> LoadReport:
    """Return the report on rows that were measured by a plan."""
    taken = list(rows)
    records = [msgspec.structs.asdict(one) for one in taken if isinstance(one, Row)]
    table = pd.DataFrame(records, columns=list(Row.__struct_fields__))
    table = table[(table.due >= terms.warm_up) & (table.ending != "stopped")]
    table = table.assign(
        complete=table.ending == "complete",
        other=(table.served != "") & (table.served != table.stack),
    )
    table["bad"] = ~table.complete | table.other
    generators = [one for one in taken if isinstance(one, Generator)]
    runs = [_run(one, table[table.run == one.number], generators, terms) for one in plan]
    runs = _without_common_failures(runs)
    void = {one.pair for one in runs if one.void}
    sound = [one for one in runs if one.pair not in void]
    table = table[table.run.isin([one.number for one in sound])]
    ratios = tuple(
        _ratio(metric, quantile, table, sound, terms)
        for metric in METRICS
        for quantile in QUANTILES
        if len(sound) // 2 >= FEWEST_PAIRS
    )
    figures = tuple(
        _figures(stack, table[table["stack"] == stack], sound, terms) for stack in STACKS
    )
    verdict, reasons = _verdict(ratios, table, runs)
    return LoadReport(
        terms=terms,
        verdict=verdict,
        reasons=tuple(reasons),
        ratios=ratios,
        stacks=figures,
        runs=tuple(runs),
    )


def _run(
    planned: PlannedRun, own: pd.DataFrame, generators: Sequence[Generator], terms: Terms
) -> RunFigures:
    made = [one for one in generators if one.run == planned.number]
    cpu = max((one.cpu for one in made), default=0.0)
    late = float(own.sent_ms.quantile(0.99)) if len(own) else 0.0
    named = own.assigned[(own.assigned != "") & (own.assigned != planned.stack)]
    void = ""
    if not made or min(one.seconds for one in made) < terms.warm_up + terms.seconds - 1:
        void = "it ended before its time"
    elif cpu > BUSY:
        void = f"the generator used {cpu:.0%} of a CPU: its stamps are late; load with --workers"
    elif late > LATE_MS:
        void = f"the generator was {late:.0f} ms late (P99): this machine is too busy"
    elif len(named):
        void = (
            f"{len(named)} of {len(own)} requests were assigned to {named.iloc[0]}: the flow's "
            "switch is off, or the router does not know the tester's key"
        )
    elif len(own) < FEWEST:
        void = f"{len(own)} requests are too few: {FEWEST} say something"
    whole = own[own.complete]
    return RunFigures(
        number=planned.number,
        pair=planned.pair,
        stack=planned.stack,
        requests=len(own),
        failed=int(own.bad.sum()),
        late_ms=late,
        cpu=cpu,
        void=void,
        p95={one: float(whole[one].quantile(DECIDES)) for one in METRICS if len(whole)},
    )


def _without_common_failures(runs: Sequence[RunFigures]) -> list[RunFigures]:
    """Void the pairs of which both stacks fail: that is their world's, and says nothing of them."""
    least: dict[int, float] = {}
    for one in runs:
        share = one.failed / max(one.requests, 1)
        least[one.pair] = min(share, least.get(one.pair, 1.0))
    reason = "both stacks fail: look at what they both need"
    return [
        msgspec.structs.replace(one, void=reason)
        if not one.void and least[one.pair] > BOTH_FAIL
        else one
        for one in runs
    ]


def _figures(
    stack: str, own: pd.DataFrame, sound: Sequence[RunFigures], terms: Terms
) -> StackFigures:
    whole = own[own.complete]
    good = whole[(whole.ttft_ms <= terms.ttft_ms) & (whole.gap_ms <= terms.gap_ms)]
    seconds = terms.seconds * sum(one.stack == stack for one in sound)
    return StackFigures(
        stack=stack,
        requests=len(own),
        endings={str(name): int(number) for name, number in own.ending.value_counts().items()},
        taken_over=int(own.other.sum()),
        goodput=len(good) / seconds if seconds else 0.0,
        figures=tuple(
            _figure(metric, quantile, whole[metric].dropna())
            for metric in METRICS
            for quantile in QUANTILES
            if len(whole) >= FEWEST
        ),
    )


def _figure(metric: str, quantile: float, values: pd.Series[float]) -> Figure:
    interval: Any = stats.quantile_test(values, p=quantile).confidence_interval(CONFIDENCE)
    return Figure(METRICS[metric], quantile, float(values.quantile(quantile)), *interval)


def _ratio(
    metric: str, quantile: float, table: pd.DataFrame, sound: Sequence[RunFigures], terms: Terms
) -> Ratio:
    """Return graph's percentile over legacy's: the mean log ratio of pairs, Student's interval."""
    whole = table[table.complete]
    found = whole.groupby("run")[metric].quantile(quantile)
    stacks = pd.DataFrame({"pair": {one.number: one.pair for one in sound}, "value": found})
    stacks["stack"] = pd.Series({one.number: one.stack for one in sound})
    pairs = stacks.pivot_table(index="pair", columns="stack", values="value").dropna()
    logs = np.log(pairs["graph"].to_numpy() / pairs["legacy"].to_numpy())
    mean, error = float(logs.mean()), float(stats.sem(logs))
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(logs) - 1)) * error
    legacy = float(stats.gmean(pairs["legacy"]))
    allowed = 1 + max(terms.margin, terms.floor_ms / legacy)
    room = abs(math.log(allowed) - mean)
    return Ratio(
        metric=METRICS[metric],
        quantile=quantile,
        ratio=math.exp(mean),
        low=math.exp(mean - reach),
        high=math.exp(mean + reach),
        allowed=allowed,
        pairs_needed=math.ceil(len(logs) * (reach / room) ** 2) if room else 0,
    )


def _verdict(
    ratios: Sequence[Ratio], table: pd.DataFrame, runs: Sequence[RunFigures]
) -> tuple[Verdict, list[str]]:
    if not ratios:
        void = sorted({one.void for one in runs if one.void})
        return "cannot tell", [f"Fewer than {FEWEST_PAIRS} pairs of runs are sound.", *void]
    counts = table.groupby("stack").bad.agg(["sum", "count"]).loc[list(STACKS)]
    legacy, graph = counts.itertuples(index=False)
    shares = graph[0] / graph[1], legacy[0] / legacy[1]
    split = np.array([[one[0], one[1] - one[0]] for one in (graph, legacy)])
    chance = float(stats.fisher_exact(split, alternative="greater").pvalue)
    if shares[0] - shares[1] >= FAILS_MORE and chance < P_VALUE:
        reason = f"{shares[0]:.1%} of graph's requests fail or are taken over, of legacy's "
        return "fails more", [f"{reason}{shares[1]:.1%} (p = {chance:.2g})."]
    decisive = [one for one in ratios if one.quantile == DECIDES]
    slower = [one for one in decisive if one.low > one.allowed]
    if slower:
        return "slower", [_sentence(one) for one in slower]
    if all(one.high <= one.allowed for one in decisive):
        return "within margins", [_sentence(one) for one in decisive]
    unclear = [one for one in decisive if one.high > one.allowed]
    needed = max(one.pairs_needed for one in unclear)
    advice = [f"About {needed} pairs of runs would decide."] if needed else []
    return "cannot tell", [*(_sentence(one) for one in unclear), *advice]


def _sentence(one: Ratio) -> str:
    return (
        f"{one.metric} P95 of graph is {one.ratio:.2f} times legacy's "
        f"({one.low:.2f} to {one.high:.2f}); {one.allowed:.2f} is allowed."
    )
