"""Exemplars: two streams side by side, as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compare.alignment import Block, align
from compare.clusters import Cell, Exemplar, Row
from compare.events import EventReader, Stream, read_stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compare.findings import Finding
    from compare.pairs import Pair

ROWS_AT_MOST = 120
ROWS_BEFORE = 60
SAID_AT_MOST = 240


def exemplar_of(pair: Pair, findings: tuple[Finding, ...], reader: EventReader) -> Exemplar:
    """Draw one pair; of a long stream the rows around the first divergence."""
    legacy = read_stream(reader, pair.control.frames)
    graph = read_stream(reader, pair.candidate.frames)
    rows = list(_rows(legacy, graph))
    kept = _around(rows)
    return Exemplar(
        pair.exchange,
        pair.flow,
        pair.served,
        pair.began,
        findings,
        tuple(kept),
        len(rows) - len(kept),
    )


def _around(rows: list[Row]) -> list[Row]:
    if len(rows) <= ROWS_AT_MOST:
        return rows
    first = next((k for k, row in enumerate(rows) if row.mark != "same"), 0)
    start = max(0, min(first - ROWS_BEFORE, len(rows) - ROWS_AT_MOST))
    return rows[start : start + ROWS_AT_MOST]


def _rows(legacy: Stream, graph: Stream) -> Iterator[Row]:
    left, right = _cells(legacy), _cells(graph)
    old = [(event.name, event.data) for event in legacy.events]
    new = [(event.name, event.data) for event in graph.events]
    for block in align(old, new):
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
    before = (0, 0)
    for index, (at, event) in enumerate(zip(stream.at, stream.events, strict=True)):
        cells.append(Cell(at, event.name, _said(stream, index, before)))
        before = stream.reached[index]
    return cells


def _said(stream: Stream, index: int, before: tuple[int, int]) -> str:
    """Say what an event adds: the growth of its text, and all else it carries."""
    event = stream.events[index]
    parts: list[str] = []
    if event.reasoning is not None:
        parts.append(f"({_growth(event.reasoning, before[1], event.growth)})")
    if event.text is not None:
        parts.append(_growth(event.text, before[0], event.growth))
    if not event.bare and event.shape != b"{}":
        parts.append(event.shape.decode("utf-8", "replace"))
    said = " ".join(part for part in parts if part)
    return said if len(said) <= SAID_AT_MOST else said[:SAID_AT_MOST] + "…"


def _growth(text: str, before: int, growth: str | None) -> str:
    if growth == "delta" or not before:
        return text
    return "…" + text[before:] if len(text) > before else "…"
