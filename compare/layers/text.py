"""Outcome and text: how each run ended, what the user has read in the end, and on the way."""

from __future__ import annotations

from typing import Final

import msgspec

from compare.findings import (
    CodeChanged,
    OutcomeChanged,
    OutcomeFinding,
    ReasoningChanged,
    RefusalAsText,
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
from contract.equality import EventStream, code_of, ended_otherwise, shrank_alone
from contract.grammar import Grammar
from contract.records import RunRecord

WENT_ON = "went on"
KEPT = "kept what it had shown"
TAKEN_BACK_AT_MOST = 400
REFUSAL: Final = "refusal"
"""Events of a wire that tells a model's refusal apart from its text, and their one field."""


def outcome_findings(pair: Pair) -> list[OutcomeFinding]:
    """Compare endings; at most one finding.

    Its path names the ending that one fault shares, however the other stack ended: how graph ended,
    or, where graph went on, how legacy did.
    """
    control, candidate = pair.control, pair.candidate
    legacy, graph = _ending(control), _ending(candidate)
    changed = ended_otherwise(control, candidate)
    if changed is None:
        return []
    if changed in {"status", "detail"}:
        path = f"{control.outcome}.{code_of(control)}.{changed}"
        return [RefusalChanged(path=path, exchange=pair.exchange, legacy=legacy, graph=graph)]
    kind = CodeChanged if changed == "code" else OutcomeChanged
    if control.outcome != "completed" and went_past(candidate):
        path = f"{_ended(control)}→{WENT_ON}"
    else:
        path = f"→{_ended(candidate)}"
    return [kind(path=path, exchange=pair.exchange, legacy=legacy, graph=graph)]


def went_past(run: RunRecord) -> bool:
    """Whether a run came to its end, or beyond what the tape could answer."""
    return run.outcome == "completed" or code_of(run) == "tape_miss"


def _ended(run: RunRecord) -> str:
    return f"{run.outcome}.{code_of(run)}" if code_of(run) else run.outcome


def _ending(run: RunRecord) -> str:
    if run.error is None:
        return run.outcome
    status = f"{run.error.status} " if run.error.status else ""
    kind = f", {run.error.kind}" if run.error.kind else ""
    kind += f" at {run.error.where}" if run.error.where else ""
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
    if told := _refusal_as_text(pair, legacy, graph):
        found.append(told)
    elif legacy.text != graph.text:
        a, b = excerpts(legacy.text, graph.text)
        found.append(TextChanged(path="final", exchange=pair.exchange, legacy=a, graph=b))
    if legacy.reasoning != graph.reasoning:
        a, b = excerpts(legacy.reasoning, graph.reasoning)
        found.append(ReasoningChanged(path="reasoning", exchange=pair.exchange, legacy=a, graph=b))
    if not found:
        found += _late(pair, legacy, graph, matched)
        found += _shrunk(pair, legacy, graph, grammar)
    return found


def _refusal_as_text(pair: Pair, legacy: EventStream, graph: EventStream) -> RefusalAsText | None:
    """Find a refusal of the model that one side tells as one, and the other as text."""
    if legacy.text == graph.text:
        return None
    sides: tuple[tuple[Side, EventStream, EventStream], ...]
    sides = (("graph", legacy, graph), ("legacy", graph, legacy))
    for side, told, shown in sides:
        refusal = refusal_of(told)
        if refusal and not refusal_of(shown) and shown.text == told.text + refusal:
            a, b = shortened(f"refusal: {refusal}"), shortened(f"text: {refusal}")
            a, b = (a, b) if side == "graph" else (b, a)
            return RefusalAsText(path=REFUSAL, exchange=pair.exchange, side=side, legacy=a, graph=b)
    return None


def refusal_of(stream: EventStream) -> str:
    """Return the text of a model's refusal in the events of that name."""
    shapes = [event.shape for event in stream.events if event.name == REFUSAL]
    pieces = [msgspec.json.decode(shape).get(REFUSAL) for shape in shapes]
    return "".join([piece for piece in pieces if isinstance(piece, str)])


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
    if not shrank_alone(legacy, graph, grammar):
        return []
    side: Side
    side, stream = ("graph", graph) if legacy.shrank is None else ("legacy", legacy)
    at = stream.shrank or 0
    path = f"{side}.frames[{at}].{stream.events[at].name}"
    taken_back = _taken_back(stream, at)
    on_graph = side == "graph"
    return [
        TextShrank(
            path=path,
            exchange=pair.exchange,
            side=side,
            legacy=KEPT if on_graph else taken_back,
            graph=taken_back if on_graph else KEPT,
        )
    ]


def _taken_back(stream: EventStream, at: int) -> str:
    """Describe what the text was before an event, and what it left of that."""
    before = ""
    for event in stream.events[:at]:
        if event.text is not None:
            before = before + event.text if event.growth == "delta" else event.text
    old, new = excerpts(before, stream.events[at].text or "", TAKEN_BACK_AT_MOST)
    return f"{old!r} became {new!r}"
