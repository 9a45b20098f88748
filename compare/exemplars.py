"""Exemplars: two streams side by side, as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compare.alignment import Block, align
from compare.clusters import Cell, Exemplar, Row
from compare.events import Event, EventReader, Stream, read_stream

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from compare.findings import Finding
    from compare.pairs import Pair
    from compare.rules import Ruling

ROWS_AT_MOST = 120
ROWS_BEFORE = 60
SAID_AT_MOST = 240
NOTHING_NEW = "… nothing new"


def exemplar_of(
    pair: Pair,
    findings: tuple[Finding, ...],
    reader: EventReader,
    ruling: Ruling | None = None,
) -> Exemplar:
    """Draw one pair; of a long stream the rows around the first divergence.

    Rows say what was sent; whether they are equal is said under the rules.
    """
    legacy = read_stream(reader, pair.control.frames)
    graph = read_stream(reader, pair.candidate.frames)
    keys = _keys(legacy, graph, ruling)
    rows = list(_rows(legacy, graph, keys))
    kept = _around(rows)
    return Exemplar(
        pair.exchange,
        pair.flow,
        pair.served,
        pair.began,
        findings,
        tuple(kept),
        len(rows) - len(kept),
        pair.sides,
    )


def _around(rows: list[Row]) -> list[Row]:
    if len(rows) <= ROWS_AT_MOST:
        return rows
    first = next((k for k, row in enumerate(rows) if row.mark != "same"), 0)
    start = max(0, min(first - ROWS_BEFORE, len(rows) - ROWS_AT_MOST))
    return rows[start : start + ROWS_AT_MOST]


def _keys(legacy: Stream, graph: Stream, ruling: Ruling | None) -> list[list[Hashable]]:
    """Give what an event of each side must share with another to be equal to it."""
    if ruling is not None:
        legacy, graph, _, _ = ruling.read(legacy, graph, ([], []))
    return [
        [(event.name, event.shape, event.text, event.reasoning) for event in stream.events]
        for stream in (legacy, graph)
    ]


def _rows(legacy: Stream, graph: Stream, keys: list[list[Hashable]]) -> Iterator[Row]:
    left, right = _cells(legacy), _cells(graph)
    for block in align(*keys):
        if block.equal:
            for i, j in zip(block.left, block.right, strict=True):
                yield Row("same", left[i], right[j])
        else:
            yield from _gap(block, left, right)


def _gap(block: Block, left: Sequence[Cell], right: Sequence[Cell]) -> Iterator[Row]:
    """Align what differs by name alone; names that differ too stand alone."""
    old = [left[i].name for i in block.left]
    new = [right[j].name for j in block.right]
    for part in align(old, new):
        a = [left[block.left[k]] for k in part.left]
        b = [right[block.right[k]] for k in part.right]
        if part.equal:
            yield from (Row("changed", x, y) for x, y in zip(a, b, strict=True))
        else:
            yield from (Row("legacy", legacy=x) for x in a)
            yield from (Row("graph", graph=y) for y in b)


def _cells(stream: Stream) -> list[Cell]:
    cells: list[Cell] = []
    text = reasoning = ""
    for at, event in zip(stream.at, stream.events, strict=True):
        cells.append(Cell(at, event.name, _said(event, text, reasoning)))
        text, reasoning = event.text or text, event.reasoning or reasoning
    return cells


def _said(event: Event, text: str, reasoning: str) -> str:
    """Say what an event adds: the growth of its texts, and all else it carries."""
    parts: list[str] = []
    if event.reasoning:
        parts.append(f"({_growth(event.reasoning, reasoning, event.growth)})")
    if event.text:
        parts.append(_growth(event.text, text, event.growth))
    if event.shape != b"{}":
        parts.append(event.shape.decode("utf-8", "replace"))
    said = " ".join(parts)
    return said if len(said) <= SAID_AT_MOST else said[:SAID_AT_MOST] + "…"


def _growth(text: str, before: str, growth: str | None) -> str:
    """Leave out what cumulative text repeats, unless it does not."""
    if growth == "delta" or not before or not text.startswith(before):
        return text
    return f"…{text[len(before) :]}" if text != before else NOTHING_NEW
