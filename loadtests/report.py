"""What the rows of a load test say of two stacks: figures, void runs, one verdict.

Latencies are those of complete requests; all others are counted beside them. Requests of one run
depend on each other: stacks are compared by log percentiles within pairs of runs.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
from scipy import stats

from loadtests.plan import STACKS, PlannedRun
from loadtests.rows import Generator, Row

_WORSE: Final = ("slower", "fails more", "leaves the bound earlier")
STATUS: Final = {"within margins": 0, "keeps up": 0, "cannot tell": 3, **dict.fromkeys(_WORSE, 1)}
"""Exit statuses by verdict."""
METRICS: Final = {"ttft_ms": "TTFT", "ended_ms": "E2E"}
QUANTILES: Final = (0.5, 0.95, 0.99)
DECIDES, CONFIDENCE = 0.95, 0.95
"""The percentile of both metrics that the verdict is about; that of all intervals."""
BUSY, LATE_MS, FEWEST, FEWEST_PAIRS, BOTH_FAIL = 0.8, 50.0, 20, 3, 0.1
"""Void: a generator's share of a CPU, its P95 of lateness; requests; pairs; failing of both."""
FAILS_MORE, P_VALUE = 0.005, 0.01
"""The least difference in shares of failures that counts, and Fisher's p."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a test was to be: the seconds of a run, and of the warm-up before it.

    Graph may be slower by `margin` (a share) or `floor_ms`, whichever is more. A request is good
    that is complete, with its first text and no silence beyond `good_ms`. A sweep has rising
    `rates`, in requests a second, one for each pair of runs; `good_ms` bounds its P95 of TTFT.
    """

    flow: str
    seconds: float
    warm_up: float = 3.0
    margin: float = 0.1
    floor_ms: float = 50.0
    good_ms: float = 2_000.0
    rates: tuple[float, ...] = ()


class LoadReport(msgspec.Struct, frozen=True):
    """What a load test found; each list holds the lines of a table.

    `ratios` of graph over legacy have intervals over pairs of runs; `figures` of `stacks` have
    them by order statistics, None beyond all values. `goodput` is in good requests a second, `rate`
    is P50 of what came a second in a stream: tokens where all streams tell them, else pieces. A
    sweep has `runs` and, of each stack, the highest rate `kept` within the bound.
    """

    terms: Terms
    verdict: str
    reasons: list[str]
    ratios: list[dict[str, Any]]
    stacks: list[dict[str, Any]]
    runs: list[dict[str, Any]]


def load_report(
    rows: Iterable[Row | Generator], plan: Sequence[PlannedRun], terms: Terms
) -> LoadReport:
    """Return the report on rows that were measured by a plan."""
    taken = list(rows)
    generators = _table([one for one in taken if isinstance(one, Generator)], Generator)
    table = _table([one for one in taken if isinstance(one, Row)], Row)
    table = table.astype(
        {"sent_ms": float, **dict.fromkeys([*METRICS, "tokens_s", "pieces_s"], float)}
    )
    table = table[(table["due"] >= terms.warm_up) & (table["ending"] != "stopped")]
    table["complete"] = table["ending"] == "complete"
    for name, column in (("foreign", "assigned"), ("taken_over", "served")):
        table[name] = (table[column] != "") & (table[column] != table["stack"])
    table["bad"] = ~table["complete"] | table["taken_over"]
    runs = _runs(plan, table, generators, terms)
    lines = msgspec.json.decode(runs.reset_index().to_json(orient="records"))
    if terms.rates:
        return _sweep(lines, terms)
    sound = runs[runs["void"].eq("").groupby(runs["pair"]).transform("all")]
    table = table[table["run"].isin(sound.index)]
    ratios = _ratios(table[table["complete"]], sound, terms)
    verdict, reasons = _verdict(ratios, table, runs)
    rates = table[table["complete"]].dropna(subset="pieces_s")
    unit = "pieces" if rates["tokens_s"].hasnans else "tokens"
    rates = rates.groupby("stack").filter(lambda own: len(own) >= FEWEST)
    median = rates.groupby("stack")[f"{unit}_s"].median().to_dict()
    stacks = [_stack(one, table[table["stack"] == one], sound, terms) for one in STACKS]
    stacks = [{**one, "rate": median.get(one["stack"]), "unit": unit} for one in stacks]
    return LoadReport(terms, verdict, reasons, ratios, stacks, lines)


def _sweep(lines: list[dict[str, Any]], terms: Terms) -> LoadReport:
    """Return up to which rate each stack keeps the bound; a void run says nothing of its rate."""
    reasons, kept, most = list[str](), dict.fromkeys(STACKS, 0.0), dict.fromkeys(STACKS, 0.0)
    for stack in STACKS:
        end = "no higher rate was asked"
        for run in (one for one in lines if one["stack"] == stack):
            rate, p95, void = run["rate"], run["first_ms"], run["void"]
            if void or p95 is None or p95 > terms.good_ms:
                shown = f"{p95 / 1000:.2f} s" if p95 else "more than 5 % are not complete"
                end = f"at {rate:g}: {void or shown}"
                most[stack] = math.inf if void else kept[stack]
                break
            kept[stack] = most[stack] = rate
        rate = f"up to {kept[stack]:g} requests a second" if kept[stack] else "at no rate"
        bound = f"keeps P95 of TTFT within {terms.good_ms / 1000:g} s"
        reasons.append(f"{stack} {bound} {rate}; {end}.")
    verdict = "keeps up" if 0 < most["legacy"] <= kept["graph"] else "cannot tell"
    verdict = "leaves the bound earlier" if most["graph"] < kept["legacy"] else verdict
    stacks = [{"stack": one, "kept": kept[one]} for one in STACKS]
    return LoadReport(terms, verdict, reasons, [], stacks, lines)


def _table(rows: Sequence[msgspec.Struct], kind: type[msgspec.Struct]) -> pd.DataFrame:
    records = [msgspec.structs.asdict(one) for one in rows]
    return pd.DataFrame(records, columns=list(kind.__struct_fields__))


def _runs(
    plan: Sequence[PlannedRun], table: pd.DataFrame, generators: pd.DataFrame, terms: Terms
) -> pd.DataFrame:
    """Return a line for each run that was planned; `void` is why it does not count."""
    by, made = table.groupby("run"), generators.groupby("run")
    runs = _table(plan, PlannedRun).set_index("number")
    runs["requests"], runs["failed"] = by.size(), by["bad"].sum()
    runs["foreign"], runs["late_ms"] = by["foreign"].sum(), by["sent_ms"].quantile(DECIDES)
    runs["cpu"], runs["lasted"] = made["cpu"].max(), made["seconds"].min()
    runs = runs.fillna(0.0).astype({"requests": int, "failed": int, "foreign": int})
    shares = runs["failed"] / runs["requests"].clip(lower=1)
    runs["both_fail"] = shares.groupby(runs["pair"]).transform("min") > BOTH_FAIL
    # What is not complete counts as beyond any bound here; JSON has no infinity, but null.
    firsts = table["ttft_ms"].fillna(table["ended_ms"]).where(~table["bad"], math.inf)
    firsts = firsts.groupby(table["run"]).quantile(DECIDES, interpolation="higher")
    runs["first_ms"] = firsts[by.size() >= FEWEST]
    runs["rate"] = [terms.rates[pair] if terms.rates else 0.0 for pair in runs["pair"]]
    runs["void"] = [_void(one, terms) for one in runs.itertuples()]
    whole = table[table["complete"]].groupby("run")
    return runs.join(whole[list(METRICS)].quantile(DECIDES)[whole.size() >= FEWEST])


def _void(run: Any, terms: Terms) -> str:
    if run.lasted < terms.warm_up + terms.seconds - 1:
        return f"it ended before its time: see run-{run.Index:03}.log"
    if run.cpu > BUSY:
        return f"the generator used {run.cpu:.0%} of a CPU, and stamps late: lower --users"
    if run.late_ms > LATE_MS:
        return f"requests went out {run.late_ms:.0f} ms late (P95): the generator lacks CPU"
    if run.foreign:
        return f"{run.foreign} requests were assigned to the other stack: see switch and qa_key"
    if run.requests < FEWEST:
        return (
            f"{run.requests} requests are too few, {FEWEST} are needed: run longer, or more users"
        )
    fail = run.both_fail and not terms.rates  # a sweep goes on until they do
    return "both stacks fail: look at what they both need" if fail else ""


def _ratios(whole: pd.DataFrame, sound: pd.DataFrame, terms: Terms) -> list[dict[str, Any]]:
    """Return graph's percentiles over legacy's: geometric means of pairs, Student's intervals."""
    lines = []
    for metric, quantile in product(METRICS, QUANTILES):
        value = sound.assign(value=whole.groupby("run")[metric].quantile(quantile))
        pairs = value.pivot_table(index="pair", columns="stack", values="value")
        pairs = pairs.reindex(columns=list(STACKS)).dropna()
        if len(pairs) < FEWEST_PAIRS:
            continue
        logs = np.log(pairs["graph"].to_numpy() / pairs["legacy"].to_numpy())
        mean, legacy = float(logs.mean()), float(stats.gmean(pairs["legacy"]))
        reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(logs) - 1) * stats.sem(logs))
        allowed = 1 + max(terms.margin, terms.floor_ms / legacy)
        ratio, low, high = (math.exp(mean + side * reach) for side in (0, -1, 1))
        needed = math.ceil(len(logs) * (reach / (math.log(allowed) - mean)) ** 2)
        line = {"metric": METRICS[metric], "quantile": quantile, "allowed": allowed}
        lines.append({**line, "ratio": ratio, "low": low, "high": high, "pairs": needed})
    return lines


def _stack(name: str, own: pd.DataFrame, sound: pd.DataFrame, terms: Terms) -> dict[str, Any]:
    whole = own[own["complete"]]
    good = whole[["ttft_ms", "gap_ms"]].max(axis=1, skipna=False) <= terms.good_ms
    seconds = terms.seconds * int((sound["stack"] == name).sum())
    figures = []
    for metric, quantile in product(METRICS, QUANTILES) if len(whole) >= FEWEST else ():
        values = whole[metric].dropna()
        interval: Any = stats.quantile_test(values, p=quantile).confidence_interval(CONFIDENCE)
        low, high = (float(one) if math.isfinite(one) else None for one in interval)
        line = {"metric": METRICS[metric], "quantile": quantile, "low": low, "high": high}
        figures.append({**line, "value": float(values.quantile(quantile))})
    return {
        "stack": name,
        "requests": len(own),
        "endings": {str(one): int(n) for one, n in own["ending"].value_counts().items()},
        "taken_over": int(own["taken_over"].sum()),
        "goodput": int(good.sum()) / max(seconds, 1),
        "figures": figures,
    }


def _verdict(
    ratios: Sequence[dict[str, Any]], table: pd.DataFrame, runs: pd.DataFrame
) -> tuple[str, list[str]]:
    if runs.loc[table["run"].unique(), "pair"].nunique() < FEWEST_PAIRS:
        reason = f"Fewer than {FEWEST_PAIRS} pairs of runs are sound."
        return "cannot tell", [reason, *sorted({one for one in runs["void"] if one})]
    counts = pd.crosstab(table["stack"], table["bad"]).reindex(columns=[True, False], fill_value=0)
    split = counts.loc[["graph", "legacy"]].to_numpy()
    graph, legacy = split[:, 0] / split.sum(axis=1)
    chance = float(stats.fisher_exact(split, alternative="greater").pvalue)
    if graph - legacy >= FAILS_MORE and chance < P_VALUE:
        both = f"{graph:.1%} of graph's requests fail or are taken over, of legacy's {legacy:.1%}"
        return "fails more", [f"{both} (p = {chance:.2g})."]
    if not (decisive := [one for one in ratios if one["quantile"] == DECIDES]):
        return "cannot tell", ["Too few requests are complete."]
    if slower := [one for one in decisive if one["low"] > one["allowed"]]:
        return "slower", [_sentence(one) for one in slower]
    unclear = [one for one in decisive if one["high"] > one["allowed"]]
    if not unclear:
        return "within margins", [_sentence(one) for one in decisive]
    advice = f"About {max(one['pairs'] for one in unclear)} pairs of runs would decide."
    return "cannot tell", [*map(_sentence, unclear), advice]


def _sentence(one: dict[str, Any]) -> str:
    interval = f"({one['low']:.2f} to {one['high']:.2f}); {one['allowed']:.2f} is allowed"
    return f"{one['metric']} P95 of graph is {one['ratio']:.2f} times legacy's {interval}."
