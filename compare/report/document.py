"""The report as a document: everything the pages show, and what report.json holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from compare.clusters import Cluster, Exemplar
from compare.damage import Damage
from compare.findings import Layer
from compare.layers.frames import Chunking
from compare.report.latency import INTERVAL, METHOD, Latency, latencies
from compare.report.titles import TITLES
from compare.verdict import Verdict, verdict_on

if TYPE_CHECKING:
    from compare.tally import Tally

VERSION = 1


class Counts(msgspec.Struct, frozen=True):
    """How many of everything; `not_comparable` and `damaged` by reason."""

    exchanges: int
    pairs: int
    equal: int
    different: int
    not_comparable: dict[str, int]
    damaged: dict[str, int]


class ClusterReport(msgspec.Struct, frozen=True):
    """One cause: findings of one layer, path (without indices) and kind, in one flow.

    `share` is that of the compared pairs; times are microseconds since the Unix epoch.
    """

    id: str
    flow: str
    layer: Layer
    kind: str
    path: str
    title: str
    exchanges: int
    findings: int
    share: float
    first_seen: int
    last_seen: int
    exemplars: tuple[Exemplar, ...]


class Report(msgspec.Struct, frozen=True):
    """A comparison of captures, legacy against graph.

    `findings_left_out` counts findings of clusters beyond the most that are kept. `damage` names
    the first things passed over; `counts.damaged` counts all of them.
    """

    v: int
    captures: str
    chunking: Chunking
    verdict: Verdict
    counts: Counts
    clusters: tuple[ClusterReport, ...]
    findings_left_out: int
    damage: tuple[Damage, ...]
    latency: tuple[Latency, ...]
    percentile_method: str
    interval_method: str
    first_seen: int
    last_seen: int


def report_of(tally: Tally, captures: str, chunking: Chunking) -> Report:
    """Write a tally up; equal tallies give equal reports."""
    return Report(
        v=VERSION,
        captures=captures,
        chunking=chunking,
        verdict=verdict_on(tally),
        counts=_counts(tally),
        clusters=tuple(_cluster(c, tally.pairs) for c in tally.clusters.ordered()),
        findings_left_out=tally.clusters.overflow,
        damage=tuple(tally.named),
        latency=latencies(tally.times),
        percentile_method=METHOD,
        interval_method=INTERVAL,
        first_seen=tally.first_seen,
        last_seen=tally.last_seen,
    )


def _counts(tally: Tally) -> Counts:
    return Counts(
        tally.exchanges,
        tally.pairs,
        tally.equal,
        tally.different,
        dict(sorted(tally.not_comparable.items())),
        dict(sorted(tally.damage.items())),
    )


def _cluster(cluster: Cluster, pairs: int) -> ClusterReport:
    return ClusterReport(
        id=cluster.id,
        flow=cluster.flow,
        layer=cluster.layer,
        kind=cluster.kind,
        path=cluster.path,
        title=TITLES[cluster.kind],
        exchanges=cluster.exchanges,
        findings=cluster.findings,
        share=cluster.exchanges / pairs if pairs else 0.0,
        first_seen=cluster.first_seen,
        last_seen=cluster.last_seen,
        exemplars=tuple(cluster.exemplars),
    )


def encode_report(report: Report) -> bytes:
    """Write the report as JSON."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def report_schema() -> bytes:
    """Write the JSON schema of the report."""
    return msgspec.json.format(msgspec.json.encode(msgspec.json.schema(Report)), indent=2) + b"\n"
