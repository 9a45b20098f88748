"""The report: what pandas counts over the rows of pairs and of exchanges, and its files.

HTML for people, Markdown for a pull request, JSON and JUnit for CI.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final, Literal, Self

import msgspec
import numpy as np
import pandas as pd
from scipy import stats

from compare.differences import SLIGHT, Difference, Kind
from compare.report.page import render, visible
from compare.report.streams import Exemplar
from compare.rows import ExchangeRow, PairRow, frame
from compare.verdict import Read, Verdict, at_most, decide
from compare.waivers import Standing, Waiver
from cutover.errors import Unusable

LEAST: Final = 20
"""No share and no percentile is said of fewer."""
MOST_CAUSES: Final = 100
"""Causes in a report, the heaviest; the verdict counts all."""
ENOUGH: Final = 299
"""Equal pairs that leave at most 1 % that may differ."""
_LEVEL = 0.05
"""The p-value from which two shares are the same."""
_VALUES, _VALUE = 3, 400
"""Sample values of a cause, and characters of each."""

Step = Literal["no_data", "damage", "set_up", "cause", "fork", "too_few", "raise"]
"""What to do next: the first that fits."""


class Share(msgspec.Struct, frozen=True):
    """A share with its 95 % interval (Clopper and Pearson 1934); none of fewer than `LEAST`."""

    count: int
    of: int
    share: float | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def at(cls, count: int, of: int) -> Self:
        """Return `count` of `of`."""
        if of < LEAST:
            return cls(count, of)
        low, high = stats.binomtest(count, of).proportion_ci(0.95, "exact")
        return cls(count, of, count / of, float(low), float(high))


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """What makes pairs of a flow differ.

    `pairs` is in how many of those compared, `values` are samples of legacy's and graph's,
    `consequences` counts what came of it where it was a pair's first. `set_up`: in all its pairs
    the calls of one service did not come back, so it is never waived.
    """

    id: str
    flow: str
    kind: Kind
    title: str
    pairs: Share
    values: tuple[tuple[str | None, ...], ...]
    consequences: dict[str, int]
    set_up: bool = False
    waiver: Waiver | None = None
    standing: Standing = ""

    @property
    def accepted(self) -> bool:
        """Whether it makes no pair different."""
        return self.kind in SLIGHT or self.standing == "in_force"


class FlowPairs(msgspec.Struct, frozen=True, kw_only=True):
    """The pairs of a flow; `may_differ` is what they leave open where none differs.

    `pieces` are frames of text of an answer, legacy's and graph's, at the median; `baseline` is
    legacy against itself.
    """

    flow: str
    differing: Share
    may_differ: float | None
    folded: int
    pieces: tuple[float, float] | None
    baseline: Share | None


class Times(msgspec.Struct, frozen=True):
    """Milliseconds from the request on, of as many exchanges; no percentile of few."""

    of: int
    p50: float | None = None
    p95: float | None = None

    @classmethod
    def over(cls, values: Any) -> Self:
        """Return the smallest values that half, and 95 %, do not exceed."""
        known = values.dropna().astype(float)
        if len(known) < LEAST:
            return cls(len(known))
        p50, p95 = np.quantile(known, [0.5, 0.95], method="inverted_cdf")
        return cls(len(known), float(p50), float(p95))


class StackServed(msgspec.Struct, frozen=True, kw_only=True):
    """What clients had of the exchanges of a flow that were assigned to a stack.

    `failures` by code include those behind which the other stack took over.
    """

    flow: str
    assigned: str
    exchanges: int
    ends: dict[str, int]
    taken_over: int
    failures: dict[str, int]
    first_text: Times
    end: Times


class Skipped(msgspec.Struct, frozen=True):
    """Exchanges, or parts of pairs, that were not compared, and why."""

    flow: str
    why: str
    exchanges: int


class CauseChange(msgspec.Struct, frozen=True, kw_only=True):
    """A cause in two reports; `p` is Fisher's exact test of both shares."""

    id: str
    flow: str
    title: str
    before: Share
    now: Share
    p: float
    state: Literal["new", "gone", "more", "less", "same"]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison found; moments are in microseconds since 1970, `span` of the exchanges."""

    made_at: int
    span: tuple[int, int] | None
    verdict: Verdict
    next: str
    step: Step
    flows: tuple[FlowPairs, ...]
    causes: tuple[Cause, ...]
    causes_left_out: int
    served: tuple[StackServed, ...]
    not_compared: tuple[Skipped, ...]
    left_out: tuple[Skipped, ...]
    read: Read
    unused_waivers: tuple[str, ...]
    exemplars: tuple[Exemplar, ...] = ()
    changes: tuple[CauseChange, ...] = ()
    fork: str = ""  # of which forks it is, if of any: no evidence for the gate
    v: Literal[1] = 1


def make_report(
    pairs: Sequence[PairRow],
    exchanges: Sequence[ExchangeRow],
    read: Read,
    *,
    made_at: int,
    today: date,
    waivers: Mapping[str, Waiver],
    exemplars: Mapping[str, Sequence[Exemplar]],
) -> Report:
    """Return the report on rows; `pairs` with `baseline` are legacy against itself.

    `exemplars` are pairs by cause.
    """
    table = frame(pairs, PairRow).astype({"baseline": bool})
    main, all_compared = table[~table["baseline"]], table[table["state"] != "not_compared"]
    compared = main[main["state"] != "not_compared"]
    others = main[main["state"] == "not_compared"]
    sizes = {str(flow): int(size) for flow, size in compared.groupby("flow").size().items()}
    causes, accepted = _causes(pairs, sizes, waivers, today)
    different = int((compared["state"] == "different").sum())
    skipped, notes = Counter(others["why_not"]), [*filter(None, map(_lapsed, causes))]
    notes += _in_part(compared, exchanges)
    verdict = decide(read, len(compared), different, accepted, skipped, notes)
    if fork := "; ".join(sorted({one.fork for one in pairs if one.fork})):
        said = f"the pairs are with a fork, which served nobody: {fork}"
        verdict = msgspec.structs.replace(verdict, reasons=(said, *verdict.reasons))
    shown = causes[:MOST_CAUSES]
    kept = {pair.exchange: pair for one in shown for pair in exemplars.get(one.id, ())}
    step, sentence = _next(verdict, causes, sizes, fork)
    return Report(
        made_at=made_at,
        span=(int(main["at"].min()), int(main["at"].max())) if len(main) else None,
        verdict=verdict,
        next=sentence,
        step=step,
        flows=tuple(_flows(all_compared)),
        causes=tuple(shown),
        causes_left_out=len(causes) - len(shown),
        served=tuple(_served(exchanges)),
        not_compared=tuple(_skipped(others, "why_not")),
        left_out=tuple(_skipped(compared.explode("left_out"), "left_out")),
        read=read,
        unused_waivers=tuple(sorted(waivers.keys() - {one.id for one in causes})),
        exemplars=tuple(kept.values()),
        fork=fork,
    )


def _counts(column: Any) -> dict[str, int]:
    return {str(name): int(count) for name, count in column.value_counts().items()}


def _skipped(frame: Any, why: str) -> Iterator[Skipped]:
    counts = frame.groupby(["flow", why]).size().sort_values(ascending=False, kind="stable")
    return (Skipped(flow, reason, int(count)) for (flow, reason), count in counts.items())


def _causes(
    pairs: Sequence[PairRow], sizes: Mapping[str, int], waivers: Mapping[str, Waiver], today: date
) -> tuple[list[Cause], int]:
    """Return the causes, the heaviest first, and how many pairs differ in accepted ones alone."""
    rows, consequences = [], dict[str, Counter[str]]()
    for row in pairs if sizes else ():
        found = [(one.cause(row.flow), one) for one in row.causes]
        if row.baseline or not found:
            continue
        rows += [(row.exchange, row.flow, row.at, row.silent, id_, one) for id_, one in found]
        first = next((id_ for id_, one in found if one.kind not in SLIGHT), found[0][0])
        explained = (one.kind for one in row.differences if one.because)
        consequences.setdefault(first, Counter()).update(explained)
    table = pd.DataFrame(rows, columns=["exchange", "flow", "at", "silent", "id", "difference"])
    causes = []
    for id_, group in table.sort_values("at", kind="stable").groupby("id"):
        once = group.drop_duplicates("exchange")
        flow, one = str(once["flow"].iloc[0]), once["difference"].iloc[0]
        cause = Cause(
            id=str(id_),
            flow=flow,
            kind=one.kind,
            title=_title(one),
            pairs=Share.at(len(once), sizes[flow]),
            values=tuple(dict.fromkeys(map(_sample, group["difference"])))[:_VALUES],
            consequences=dict(consequences.get(str(id_), {})),
            set_up=bool(once["silent"].all()),
        )
        if (waiver := waivers.get(cause.id)) and not cause.set_up:
            standing = waiver.standing(len(once) / sizes[flow], today)
            cause = msgspec.structs.replace(cause, waiver=waiver, standing=standing)
        causes.append(cause)
    causes.sort(key=lambda one: (one.accepted, one.kind in SLIGHT, -one.pairs.count, one.id))
    differing = table[~table["id"].isin([one.id for one in causes if one.kind in SLIGHT])]
    not_accepted = differing[~differing["id"].isin([one.id for one in causes if one.accepted])]
    return causes, differing["exchange"].nunique() - not_accepted["exchange"].nunique()


def _title(one: Difference) -> str:
    kind = one.kind.replace("_", " ")
    named = kind if one.name in {kind, ""} else f"{kind}: {one.name}"
    return visible(f"{named} at {one.path}" if one.path else named).replace("`", "'")


def _sample(one: Difference) -> tuple[str | None, ...]:
    both = one.legacy, one.graph
    return tuple(f"{value[:_VALUE]}…" if value and len(value) > _VALUE else value for value in both)


def _lapsed(cause: Cause) -> str:
    if cause.waiver is None or cause.standing == "in_force":
        return ""
    whose = f"the waiver of {cause.id} ({cause.waiver.owner})"
    if cause.standing == "expired":
        return f"{whose} ended on {cause.waiver.until}"
    share = f"{cause.pairs.count:,} of {cause.pairs.of:,} pairs"
    return f"{whose} holds up to {cause.waiver.at_most_percent:g} %, and {share} have it"


def _in_part(compared: Any, exchanges: Sequence[ExchangeRow]) -> Iterator[str]:
    """Yield what a verdict on pairs leaves open, for a reader who sees nothing but the verdict."""
    parts = [*compared["left_out"].explode().dropna().unique()]
    part = f" ({parts[0]})" if len(parts) == 1 else ""
    counts = {
        "pairs hold ids, or moments in prompts, that are taken for equal": sum(
            compared["folded"] > 0
        ),
        f"pairs were compared only in part{part}": compared["left_out"].astype(bool).sum(),
        "exchanges were taken over: `cutover gate` counts these failures": sum(
            bool(one.failed_behind) for one in exchanges
        ),
    }
    return (f"{count:,} {what}" for what, count in counts.items() if count)


def _flows(compared: Any) -> Iterator[FlowPairs]:
    for flow, group in compared.groupby("flow"):
        main, again = group[~group["baseline"]], group[group["baseline"]]
        pieces = pd.DataFrame([*main["pieces"]], columns=["legacy", "graph"]).median()
        differing, own = (int((one["state"] == "different").sum()) for one in (main, again))
        yield FlowPairs(
            flow=flow,
            differing=Share.at(differing, len(main)),
            may_differ=None if differing or len(main) < LEAST else at_most(len(main)),
            folded=int(main["folded"].sum()),
            pieces=(float(pieces.iloc[0]), float(pieces.iloc[1])) if len(main) >= LEAST else None,
            baseline=Share.at(own, len(again)) if len(again) else None,
        )


def _served(rows: Sequence[ExchangeRow]) -> Iterator[StackServed]:
    for (flow, assigned), group in frame(rows).groupby(["flow", "assigned"]):
        taken_over = group["failed_behind"] != ""
        yield StackServed(
            flow=str(flow),
            assigned=str(assigned),
            exchanges=len(group),
            ends=_counts(group["end"]),
            taken_over=int(taken_over.sum()),
            failures=_counts(group["code"][taken_over | (group["end"] == "failed")]),
            first_text=Times.over(group["first_text_ms"]),
            end=Times.over(group["ended_ms"]),
        )


def _next(
    verdict: Verdict, causes: Sequence[Cause], sizes: Mapping[str, int], fork: str
) -> tuple[Step, str]:
    """Return what to do next, and its sentence."""
    heaviest = next((one for one in causes if not one.accepted), None)
    flow, least = min(sizes.items(), key=lambda size: size[1], default=("", 0))
    step: Step = "too_few" if least < ENOUGH else "raise"
    if verdict.label == "nothing":
        step = "no_data"
    elif verdict.label in {"unreadable", "incomplete"}:
        step = "damage"
    elif fork:
        step = "fork"
    elif heaviest is not None:
        step = "set_up" if heaviest.set_up else "cause"
    more = {"flow": flow, "pairs": least, "may_differ": at_most(least)}
    return step, render("next.txt.j2", step=step, cause=heaviest, **more).strip()


def compared_with(report: Report, older: Report) -> Report:
    """Return a report with what became of each cause since an older one."""
    both = older, report
    before, now = ({one.id: one for one in each.causes} for each in both)
    sizes = [{one.flow: one.differing.of for one in each.flows} for each in both]
    changes = []
    for id_, one in (before | now).items():
        was, is_ = (
            each[id_].pairs if id_ in each else Share.at(0, size.get(one.flow, 0))
            for each, size in zip((before, now), sizes, strict=True)
        )
        table = np.array([[share.count, share.of - share.count] for share in (was, is_)])
        p = float(stats.fisher_exact(table).pvalue)
        state, where = _state(was, is_, p), {"id": id_, "flow": one.flow, "title": one.title}
        changes.append(CauseChange(**where, before=was, now=is_, p=p, state=state))
    changes.sort(key=lambda one: (one.state == "same", one.p, one.id))
    return msgspec.structs.replace(report, changes=tuple(changes))


def _state(was: Share, now: Share, p: float) -> Literal["new", "gone", "more", "less", "same"]:
    if not was.count or not now.count:
        return "gone" if was.count else "new"
    if p >= _LEVEL:
        return "same"
    return "more" if now.count * was.of > was.count * now.of else "less"


def read_report(path: Path) -> Report:
    """Return the report in a `report.json`, or in a folder's; raises `Unusable`."""
    try:
        content = (path / "report.json" if path.is_dir() else path).read_bytes()
        return msgspec.json.decode(content, type=Report)
    except (OSError, msgspec.MsgspecError) as error:
        raise Unusable(where=path, reason=str(error)) from error


def files(report: Report) -> Mapping[str, bytes]:
    """Return the content of each file by its name."""
    templates = ("report.html", "report.md", "junit.xml")
    pages = {name: render(f"{name}.j2", report=report) for name in templates}
    schema = msgspec.json.encode(msgspec.json.schema(Report))
    return {
        **{name: page.encode("utf-8", "replace") for name, page in pages.items()},
        "report.json": msgspec.json.format(msgspec.json.encode(report)),
        "report.schema.json": msgspec.json.format(schema),
    }


def summary(report: Report) -> str:
    """Return the verdict, the heaviest causes and what to do next, for a terminal."""
    return render("summary.txt.j2", report=report).strip()
