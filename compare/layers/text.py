"""Text: what the user has read in the end, and on the way."""

from __future__ import annotations

from compare.findings import (
    ReasoningChanged,
    Side,
    TextChanged,
    TextFinding,
    TextLate,
    TextShrank,
    excerpts,
)
from compare.input.pairing import Pair
from compare.streams.events import Stream
from contract.grammar import Grammar


def text_findings(
    pair: Pair,
    legacy: Stream,
    graph: Stream,
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
    pair: Pair, legacy: Stream, graph: Stream, matched: list[tuple[int, int]]
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


def _shrunk(pair: Pair, legacy: Stream, graph: Stream, grammar: Grammar) -> list[TextFinding]:
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
