"""Outcome and text: how each run ended, what the user has read in the end, and on the way."""

from __future__ import annotations

from compare.findings import (
    CodeChanged,
    OutcomeChanged,
    OutcomeFinding,
    ReasoningChanged,
    RefusalChanged,
    Side,
    TextChanged,
    TextFinding,
    TextLate,
    TextShrank,
    excerpts,
    shortened,
)
from compare.input.pairing import Pair
from compare.streams.events import EventStream
from contract.grammar import Grammar
from contract.records import RunRecord


def outcome_findings(pair: Pair) -> list[OutcomeFinding]:
    """Compare endings; at most one finding."""
    control, candidate = pair.control, pair.candidate
    legacy, graph = _ending(control), _ending(candidate)
    if control.outcome != candidate.outcome:
        path = f"{control.outcome}→{candidate.outcome}"
        return [OutcomeChanged(path=path, exchange=pair.exchange, legacy=legacy, graph=graph)]
    if _code(control) != _code(candidate):
        path = f"{control.outcome}.code"
        return [CodeChanged(path=path, exchange=pair.exchange, legacy=legacy, graph=graph)]
    if changed := _refused_otherwise(control, candidate):
        path = f"{control.outcome}.{_code(control)}.{changed}"
        return [RefusalChanged(path=path, exchange=pair.exchange, legacy=legacy, graph=graph)]
    return []


def _refused_otherwise(control: RunRecord, candidate: RunRecord) -> str:
    """Name what differs of two refusals with one code; "" where an earlier version wrote one."""
    old, new = control.error, candidate.error
    if old is None or new is None or not (old.status and new.status):
        return ""
    if old.status != new.status:
        return "status"
    return "" if old.detail == new.detail else "detail"


def _code(run: RunRecord) -> str:
    return run.error.code if run.error else ""


def _ending(run: RunRecord) -> str:
    if run.error is None:
        return run.outcome
    status = f"{run.error.status} " if run.error.status else ""
    kind = f", {run.error.kind}" if run.error.kind else ""
    detail = f": {run.error.detail}" if run.error.detail else ""
    return shortened(f"{run.outcome} ({status}{run.error.code}{kind}{detail})")


def text_findings(
    pair: Pair,
    legacy: EventStream,
    graph: EventStream,
    matched: list[tuple[int, int]],
    grammar: Grammar,
) -> list[TextFinding]:
    """Compare texts; `matched` are the indices of frames that stand for each other."""
    found: list[TextFinding] = []
    if legacy.text != graph.text:
        a, b = excerpts(legacy.text, graph.text)
        found.append(TextChanged(path="final", exchange=pair.exchange, legacy=a, graph=b))
    if legacy.reasoning != graph.reasoning:
        a, b = excerpts(legacy.reasoning, graph.reasoning)
        found.append(ReasoningChanged(path="reasoning", exchange=pair.exchange, legacy=a, graph=b))
    if not found:
        found += _late(pair, legacy, graph, matched)
        found += _shrunk(pair, legacy, graph, grammar)
    return found


def _late(
    pair: Pair, legacy: EventStream, graph: EventStream, matched: list[tuple[int, int]]
) -> list[TextFinding]:
    """Find the first frame both sent, text not being its only content, at which texts differ."""
    for i, j in matched:
        event = legacy.events[i]
        if not event.bare and legacy.reached[i] != graph.reached[j]:
            return [
                TextLate(
                    path=f"frames[{i}].{event.name}",
                    exchange=pair.exchange,
                    legacy=legacy.text[: legacy.reached[i][0]],
                    graph=graph.text[: graph.reached[j][0]],
                )
            ]
    return []


def _shrunk(
    pair: Pair, legacy: EventStream, graph: EventStream, grammar: Grammar
) -> list[TextFinding]:
    """Find a text that took back on one side, where the grammar does not watch over it."""
    if (legacy.shrank is None) == (graph.shrank is None):
        return []
    side: Side
    side, stream = ("graph", graph) if legacy.shrank is None else ("legacy", legacy)
    at = stream.shrank or 0
    name = stream.events[at].name
    if name in grammar.growing:
        return []
    path = f"{side}.frames[{at}].{name}"
    return [TextShrank(path=path, exchange=pair.exchange, side=side)]
