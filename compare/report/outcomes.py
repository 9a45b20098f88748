"""Outcomes in the report: what became of exchanges, by assigned stack, and by who served."""

from __future__ import annotations

from array import array
from itertools import islice
from typing import Literal

import msgspec
import numpy as np

from compare.report.latency import SHARES, Percentile, percentile
from evidence.intervals import share_interval
from evidence.outcomes import (
    BILLION,
    FAILED,
    TIMES,
    Group,
    GroupTotals,
    OutcomeTotals,
    TimeMeasure,
)
from evidence.pages.formats import duration, percent

CODES_SHOWN = 8


class ShareEstimate(msgspec.Struct, frozen=True):
    """How many of the exchanges, and the 95 % interval (Wilson) of their share."""

    count: int
    share: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """The count, its share and its interval, in words; "0" of none."""
        if not self.count:
            return "0"
        interval = f"{percent(self.low)} … {percent(self.high)}"
        return f"{self.count:,} ({percent(self.share)}, {interval})"


class OutcomeTimes(msgspec.Struct, frozen=True):
    """The percentiles of one time of exchanges, in microseconds, of those that have it."""

    metric: TimeMeasure
    exchanges: int
    percentiles: tuple[Percentile, ...]


class OutcomeRow(msgspec.Struct, frozen=True):
    """What became of the exchanges `by` the stack they were assigned to, or the one that served.

    `errors` are failed, truncated or timed out exchanges, `error_codes`, `refusal_codes` and
    `fallback_reasons` ("takeover: stall") count them by why. `lost_us` is what fallbacks cost in
    all. Tokens and `cost` are those of live calls; `cost` is None where no price is known. `scores`
    counts the feedback by score. A client that left counts whatever else became of its exchange.
    """

    flow: str
    by: Literal["assigned", "served"]
    stack: str
    requests: int
    ends: dict[str, int]
    errors: ShareEstimate
    error_codes: dict[str, int]
    refusals: ShareEstimate
    refusal_codes: dict[str, int]
    fallbacks: ShareEstimate
    fallback_reasons: dict[str, int]
    lost_us: int
    client_left: ShareEstimate
    times: tuple[OutcomeTimes, ...]
    prompt_tokens: int
    completion_tokens: int
    cost: float | None
    tool_calls: int
    tool_failures: int
    in_doubt: dict[str, int]
    scores: dict[str, int]

    @property
    def truncated(self) -> int:
        """How many streams broke off."""
        return self.ends.get("truncated", 0)

    @property
    def tools_text(self) -> str:
        """How many tools were called, and how many of the calls failed."""
        failed = f", {self.tool_failures:,} failed" if self.tool_failures else ""
        return f"{self.tool_calls:,}{failed}" if self.tool_calls else "–"

    @property
    def scores_text(self) -> str:
        """The feedback: how many liked it, and how many did not."""
        named = (("1", "+"), ("0", "±"), ("-1", "−"))
        return " ".join(f"{sign}{self.scores[k]:,}" for k, sign in named if k in self.scores) or "–"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why exchanges failed, were refused or were saved, in words."""
        whys = (
            ("failed", self.error_codes),
            ("refused", self.refusal_codes),
            ("served by the other stack", self.fallback_reasons),
            ("may have happened, nobody knows", self.in_doubt),
        )
        return tuple(f"{what}: {_listed(codes)}" for what, codes in whys if codes)

    def time_text(self, metric: TimeMeasure, share: float) -> str:
        """Return a percentile in words; – where no exchange has that time."""
        held = [p for one in self.times if one.metric == metric for p in one.percentiles]
        return next((duration(p.value) for p in held if p.share == share), "–")


def outcome_rows(totals: OutcomeTotals) -> tuple[OutcomeRow, ...]:
    """Summarise totals: by assigned stack first in each flow, legacy first."""
    sides: tuple[tuple[Literal["assigned", "served"], dict[Group, GroupTotals]], ...] = (
        ("assigned", totals.by_assigned()),
        ("served", totals.by_served()),
    )
    rows = [
        _row(group.flow, by, group.assigned or group.served, held)
        for by, groups in sides
        for group, held in groups.items()
    ]
    return tuple(sorted(rows, key=lambda r: (r.flow, r.by, r.stack != "legacy", r.stack)))


def _row(flow: str, by: Literal["assigned", "served"], stack: str, held: GroupTotals) -> OutcomeRow:
    requests = held.total("exchanges")
    ends = _codes(held, "exchanges")

    def share(count: int) -> ShareEstimate:
        return ShareEstimate(count, count / requests, *share_interval(count, requests))

    return OutcomeRow(
        flow=flow,
        by=by,
        stack=stack,
        requests=requests,
        ends=ends,
        errors=share(sum(ends.get(end, 0) for end in FAILED)),
        error_codes=_codes(held, "errors"),
        refusals=share(held.total("refusals")),
        refusal_codes=_codes(held, "refusals"),
        fallbacks=share(held.total("fallbacks")),
        fallback_reasons=_codes(held, "fallbacks"),
        lost_us=held.total("lost"),
        client_left=share(held.total("client_left")),
        times=tuple(_times(metric, held.times[metric]) for metric in TIMES if held.times[metric]),
        prompt_tokens=held.total("prompt_tokens"),
        completion_tokens=held.total("completion_tokens"),
        cost=held.counts[("cost",)] / BILLION if ("cost",) in held.counts else None,
        tool_calls=held.total("tool_calls"),
        tool_failures=held.total("tool_failures"),
        in_doubt=_codes(held, "in_doubt"),
        scores=_codes(held, "feedback"),
    )


def _listed(codes: dict[str, int]) -> str:
    """Write the most frequent codes, and count the others."""
    shown = [f"{code} {count:,}" for code, count in islice(codes.items(), CODES_SHOWN)]
    more = len(codes) - len(shown)
    return ", ".join([*shown, *([f"{more} more"] if more else [])])


def _codes(held: GroupTotals, measure: str) -> dict[str, int]:
    """Return the counts of a measure by code, the most frequent first."""
    found = [
        (": ".join(filter(None, codes)) or "no code", count)
        for (name, *codes), count in held.counts.items()
        if name == measure
    ]
    return dict(sorted(found, key=lambda one: (-one[1], one[0])))


def _times(metric: TimeMeasure, series: array[int]) -> OutcomeTimes:
    values = np.sort(np.asarray(series, dtype=np.int64))
    found = tuple(percentile(values, share) for share in SHARES)
    return OutcomeTimes(metric, len(values), found)
