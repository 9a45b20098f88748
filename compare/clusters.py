"""Clusters: causes of one signature, counted, with a few exemplars; bounded memory.

An exemplar shows an exchange: both streams side by side, as people read them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from compare.findings import (
    LAYERS,
    Finding,
    Layer,
    detail_of,
    general_path,
    kind_of,
    shortened,
    signature_of,
)
from compare.input.damage import ILLEGIBLE
from compare.input.pairing import STACKS, Pair, Sides
from compare.rules import Ruling
from compare.streams.alignment import align
from compare.streams.events import EventReader, read_stream
from contract.equality import EventStream

EXEMPLARS = 3
KINDS_AT_MOST = 100
NAME_AT_MOST = 200
OTHERS = "others"
CLUSTERS_AT_MOST = 500
ROWS_AT_MOST = 120
ROWS_BEFORE = 60
ADDED_AT_MOST = 240
REQUEST_AT_MOST = 4_000
NOTHING_NEW = "… nothing new"

Mark = Literal["same", "changed", "legacy", "graph"]
"""How a row of two streams reads: `same`, `changed`, or only on one side, `legacy` or `graph`."""


class Cell(msgspec.Struct, frozen=True):
    """One event as people read it: microseconds since the exchange began, name, what it adds."""

    at: int
    name: str
    said: str


class Row(msgspec.Struct, frozen=True):
    """One line of two streams side by side."""

    mark: Mark
    legacy: Cell | None = None
    graph: Cell | None = None


class Exemplar(msgspec.Struct, frozen=True):
    """One exchange that shows a cluster: everything found in it, and both streams.

    `began` is wall-clock microseconds since the Unix epoch; `left_out` counts rows not kept;
    `sides` are what both runs are called; `request` and `options` are JSON, "" where unknown.
    """

    exchange: str
    flow: str
    served: str
    began: int
    findings: tuple[Finding, ...]
    rows: tuple[Row, ...]
    left_out: int = 0
    sides: Sides = STACKS
    request: str = ""
    options: str = ""


class Kinds(Counter[str]):
    """How many of each kind, under names that captures may have made up.

    Long names are shortened; beyond `KINDS_AT_MOST` kinds, further ones are `OTHERS`.
    """

    def count(self, name: str) -> None:
        """Count one of a kind."""
        self._add(shortened(name, NAME_AT_MOST), 1)

    def merge(self, other: Kinds) -> None:
        """Take in the counts of another part."""
        for kind, times in other.items():
            self._add(kind, times)

    def _add(self, kind: str, times: int) -> None:
        self[kind if kind in self or len(self) < KINDS_AT_MOST else OTHERS] += times


@dataclass(slots=True)
class Cluster:
    """All causes of one signature in one flow.

    `classes` counts what they and what follows from them change, by detail and class of change.
    """

    id: str
    flow: str
    layer: Layer
    path: str
    kind: str
    exchanges: int = 0
    findings: int = 0
    first_seen: int = 0
    last_seen: int = 0
    exemplars: list[Exemplar] = field(default_factory=list)
    classes: Kinds = field(default_factory=Kinds)

    def merge(self, other: Cluster) -> None:
        """Take in the same cluster of another part of the captures."""
        self.classes.merge(other.classes)
        self.seen(other.first_seen)
        self.seen(other.last_seen)
        self.exchanges += other.exchanges
        self.findings += other.findings
        self.exemplars = sorted([*self.exemplars, *other.exemplars], key=_order)[:EXEMPLARS]

    def seen(self, began: int) -> None:
        """Note when an exchange of this cluster began."""
        self.first_seen = min(self.first_seen or began, began)
        self.last_seen = max(self.last_seen, began)

    def wants(self, began: int, exchange: str) -> bool:
        """Whether an exchange of that time would become an exemplar: the earliest do."""
        if len(self.exemplars) < EXEMPLARS:
            return True
        return (began, exchange) < _order(self.exemplars[-1])

    def show(self, exemplar: Exemplar) -> None:
        """Keep an exemplar."""
        self.exemplars = sorted([*self.exemplars, exemplar], key=_order)[:EXEMPLARS]


def _order(exemplar: Exemplar) -> tuple[int, str]:
    return exemplar.began, exemplar.exchange


@dataclass(slots=True)
class Clusters:
    """Clusters by flow and signature; `overflow` counts findings beyond `CLUSTERS_AT_MOST`."""

    by_key: dict[tuple[str, str], Cluster] = field(default_factory=dict)
    overflow: int = 0

    def add(
        self, flow: str, began: int, findings: tuple[Finding, ...], draw: Callable[[], Exemplar]
    ) -> None:
        """Take in the findings of one pair; `draw` makes the exemplar, if one is wanted."""
        drawn: Exemplar | None = None
        counts: dict[str, tuple[Finding, int]] = {}
        signatures: dict[int, str] = {}
        for finding in findings:
            if finding.after is None:
                signature = signatures[id(finding)] = signature_of(finding)
                counts[signature] = finding, counts.get(signature, (finding, 0))[1] + 1
        for signature, (finding, count) in counts.items():
            cluster = self._cluster(flow, signature, finding)
            if cluster is None:
                self.overflow += count
                continue
            cluster.exchanges += 1
            cluster.findings += count
            cluster.seen(began)
            for one in findings:
                if signature in {one.after, signatures.get(id(one))}:
                    cluster.classes.count(detail_of(one))
            if cluster.wants(began, finding.exchange):
                drawn = drawn or draw()
                cluster.show(drawn)

    def _cluster(self, flow: str, signature: str, finding: Finding) -> Cluster | None:
        known = self.by_key.get((flow, signature))
        if known is not None or len(self.by_key) >= CLUSTERS_AT_MOST:
            return known
        path = general_path(finding.path)
        made = Cluster(signature, flow, finding.layer, path, kind_of(finding))
        self.by_key[flow, signature] = made
        return made

    def merge(self, other: Clusters) -> None:
        """Take in the clusters of another part of the captures."""
        self.overflow += other.overflow
        for key, cluster in other.by_key.items():
            mine = self.by_key.get(key)
            if mine is None and len(self.by_key) >= CLUSTERS_AT_MOST:
                self.overflow += cluster.findings
                continue
            if mine is None:
                mine = self.by_key[key] = Cluster(
                    cluster.id, cluster.flow, cluster.layer, cluster.path, cluster.kind
                )
            mine.merge(cluster)

    def ordered(self) -> list[Cluster]:
        """List clusters by how many exchanges they are in, then outside in."""
        return sorted(
            self.by_key.values(),
            key=lambda c: (-c.exchanges, LAYERS.index(c.layer), c.flow, c.path, c.kind),
        )


def exemplar_of(
    pair: Pair,
    findings: tuple[Finding, ...],
    reader: EventReader,
    ruling: Ruling | None = None,
) -> Exemplar:
    """Draw one pair; of a long stream the rows around the first divergence.

    Rows show what was sent; whether they are equal is told under the rules.
    """
    streams = [read_stream(reader, run.frames) for run in (pair.control, pair.candidate)]
    rows = list(_rows(streams, ruling))
    start = 0
    if len(rows) > ROWS_AT_MOST:
        first = next((k for k, row in enumerate(rows) if row.mark != "same"), 0)
        start = max(0, min(first - ROWS_BEFORE, len(rows) - ROWS_AT_MOST))
    kept = rows[start : start + ROWS_AT_MOST]
    asked = next((run.request for run in (pair.control, pair.candidate) if run.request), None)
    return Exemplar(
        pair.exchange,
        pair.flow,
        pair.served,
        pair.began,
        findings,
        tuple(kept),
        len(rows) - len(kept),
        pair.sides,
        "" if asked is None else _json(asked.body),
        "" if asked is None else _json(asked.options),
    )


def _json(raw: msgspec.Raw) -> str:
    try:
        laid_out = msgspec.json.format(bytes(raw), indent=2)
    except ILLEGIBLE:
        laid_out = bytes(raw)
    return shortened(laid_out.decode("utf-8", "replace"), REQUEST_AT_MOST)


def _rows(streams: Sequence[EventStream], ruling: Ruling | None) -> Iterator[Row]:
    left, right = map(_cells, streams)
    if ruling is not None:
        streams = ruling.read(streams[0], streams[1], ([], []))[:2]
    keys: list[list[Hashable]] = [
        [(event.name, event.shape, event.text, event.reasoning) for event in stream.events]
        for stream in streams
    ]
    for block in align(*keys):
        old = [left[i] for i in block.left]
        new = [right[j] for j in block.right]
        if block.equal:
            yield from (Row("same", x, y) for x, y in zip(old, new, strict=True))
            continue
        # What differs is aligned by name alone; names that differ too stand alone.
        for part in align([cell.name for cell in old], [cell.name for cell in new]):
            a, b = [old[k] for k in part.left], [new[k] for k in part.right]
            if part.equal:
                yield from (Row("changed", x, y) for x, y in zip(a, b, strict=True))
            else:
                yield from (Row("legacy", legacy=x) for x in a)
                yield from (Row("graph", graph=y) for y in b)


def _cells(stream: EventStream) -> list[Cell]:
    """Describe what each event adds: the growth of its texts, and all else it carries."""
    cells: list[Cell] = []
    text = reasoning = ""
    for at, event in zip(stream.at, stream.events, strict=True):
        parts: list[str] = []
        if event.reasoning:
            parts.append(f"({_growth(event.reasoning, reasoning, event.growth)})")
        if event.text:
            parts.append(_growth(event.text, text, event.growth))
        if event.shape != b"{}":
            parts.append(event.shape.decode("utf-8", "replace"))
        added = " ".join(parts)
        shown = added if len(added) <= ADDED_AT_MOST else added[:ADDED_AT_MOST] + "…"
        cells.append(Cell(at, event.name, shown))
        text, reasoning = event.text or text, event.reasoning or reasoning
    return cells


def _growth(text: str, before: str, growth: str | None) -> str:
    """Leave out what cumulative text repeats, unless it does not."""
    if growth == "delta" or not before or not text.startswith(before):
        return text
    return f"…{text[len(before) :]}" if text != before else NOTHING_NEW
