"""What a page of metrics and the totals of captures count alike, in one form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from compare.input.damage import Damage
from evidence.outcomes import BILLION, ExchangeOutcome, OutcomeTotals
from router.telemetry import instruments as i
from tests.support.metrics_page import samples

Counts = Mapping[tuple[str, ...], int]
"""Whole numbers by flow, assigned and served stack, and what they count; tokens and cost by
flow alone, too: as they are counted by model."""

_COUNTED = {
    i.EXCHANGES: "exchanges",
    i.ERRORS: "errors",
    i.FALLBACKS: "fallbacks",
    i.CLIENTS_LEFT: "client_left",
    i.TOOL_CALLS: "tool_calls",
    i.TOOL_FAILURES: "tool_failures",
}
_TIMED = {
    i.FIRST_FRAME: "first_frame",
    i.FIRST_TEXT: "first_text",
    i.LAST_FRAME: "last_frame",
    i.LONGEST_GAP: "longest_gap",
}
_WHO = 3


def outcome_totals(read: Iterable[ExchangeOutcome | Damage]) -> OutcomeTotals:
    """Count outcomes; there is no damage."""
    totals = OutcomeTotals()
    for one in read:
        assert isinstance(one, ExchangeOutcome), one
        totals.add(one)
    return totals


def counts_on_page(page: str) -> Counts:
    """Read what a page of metrics counts of exchanges."""
    found: Counter[tuple[str, ...]] = Counter()
    for instrument, measure in _COUNTED.items():
        for labels, value in samples(page, instrument, "").items():
            found[*labels[:_WHO], measure, *labels[_WHO:]] += round(value)
    for who, seconds in samples(page, i.FALLBACK_LOST).items():
        found[*who, "lost"] += round(seconds * 1e6)
    for instrument, name in _TIMED.items():
        for who, value in samples(page, instrument, "_count").items():
            found[*who, name, "count"] += round(value)
        for who, seconds in samples(page, instrument, "_sum").items():
            found[*who, name, "sum"] += round(seconds * 1e6)
    for labels, value in samples(page, i.EXCHANGE_TOKENS).items():
        found[*labels[:_WHO], "tokens", labels[_WHO]] += round(value)
    for who, value in samples(page, i.EXCHANGE_COST).items():
        found[*who, "cost"] += round(value * BILLION)
    for (flow, _, code), value in samples(page, i.REFUSALS).items():
        found[flow, "refusals", code] += round(value)
    for (flow, _, role, *_, kind), value in samples(page, i.TOKENS).items():
        if role != "shadow":
            found[flow, "tokens", kind] += round(value)
    for (flow, _, role, *_), value in samples(page, i.COST).items():
        if role != "shadow":
            found[flow, "cost"] += round(value * BILLION)
    return {key: value for key, value in found.items() if value}


def counts_of_totals(totals: OutcomeTotals) -> Counts:
    """Return the same of the totals of captures."""
    found: Counter[tuple[str, ...]] = Counter()
    kinds = {"prompt_tokens": "input", "completion_tokens": "output"}
    for group, held in totals.groups.items():
        for measure, amount in held.counts.items():
            match measure:
                case ("prompt_tokens" | "completion_tokens" as name,):
                    found[group.flow, "tokens", kinds[name]] += amount
                    found[*group, "tokens", kinds[name]] += amount
                case ("cost",):
                    found[group.flow, "cost"] += amount
                    found[*group, "cost"] += amount
                case ("refusals", _):
                    found[group.flow, *measure] += amount
                case ("feedback", _):
                    pass  # counted where it is posted
                case _:
                    found[*group, *measure] += amount
        for timed, times in held.times.items():
            if timed in _TIMED.values():
                found[*group, timed, "count"] += len(times)
                found[*group, timed, "sum"] += sum(times)
    return {key: value for key, value in found.items() if value}
