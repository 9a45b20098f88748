"""Markdown: the report as a comment on a pull request, short enough to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compare.findings import Finding, signature_of
from compare.report.legible import duration, percent, visible

if TYPE_CHECKING:
    from compare.report.document import ClusterReport, Report
    from compare.report.latency import Latency

CLUSTERS_SHOWN = 10
QUOTED = 60
_MARKS = {"equal": "✅", "different": "❌", "no data": "⚪"}


def markdown(report: Report) -> str:
    """Write the report as Markdown."""
    verdict = report.verdict
    lines = [
        f"### {_MARKS[verdict.label]} cutover diff: **{verdict.label}**",
        "",
        *(f"- {_text(reason)}" for reason in verdict.reasons),
        "",
        *_clusters(report),
        *_latency(report),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _clusters(report: Report) -> list[str]:
    if not report.clusters:
        return []
    shown = report.clusters[:CLUSTERS_SHOWN]
    lines = [
        "| share | layer | what | where | legacy → graph | id |",
        "|--:|---|---|---|---|---|",
        *map(_row, shown),
        "",
    ]
    if len(report.clusters) > len(shown):
        lines += [f"… and {len(report.clusters) - len(shown)} more causes in the full report.", ""]
    return lines


def _row(cluster: ClusterReport) -> str:
    cells = [
        f"{percent(cluster.share)} ({cluster.exchanges:,})",
        cluster.layer,
        cluster.title,
        _code(f"{cluster.flow} {cluster.path}"),
        _example(cluster),
        _code(cluster.id),
    ]
    return f"| {' | '.join(cells)} |"


def _example(cluster: ClusterReport) -> str:
    for exemplar in cluster.exemplars:
        for finding in exemplar.findings:
            if finding.after is None and signature_of(finding) == cluster.id:
                return f"{_value(finding, 'legacy')} → {_value(finding, 'graph')}"
    return ""


def _value(finding: Finding, side: str) -> str:
    value = finding.legacy if side == "legacy" else finding.graph
    return "–" if value is None else _code(_around(value, finding.legacy, finding.graph))


def _around(value: str, legacy: str | None, graph: str | None) -> str:
    """Quote a value where it first differs from the other."""
    pairs = zip(legacy or "", graph or "", strict=False)
    first = next((k for k, (a, b) in enumerate(pairs) if a != b), 0)
    start = max(0, first - 10)
    quoted = value[start : start + QUOTED]
    return f"{'…' if start else ''}{quoted}{'…' if start + QUOTED < len(value) else ''}"


def _code(text: str) -> str:
    """Quote foreign text so that nothing in it is markup, a mention or a new line."""
    flat = visible(text.replace("\n", "⏎").replace("\r", "⏎").replace("\t", " "))
    return f"`{flat.replace('`', 'ˋ').replace('|', '¦') or ' '}`"


def _text(reason: str) -> str:
    return visible(reason).replace("<", "&lt;").replace("@", "@\u2060")


def _latency(report: Report) -> list[str]:
    served = [latency for latency in report.latency if latency.role == "serving"]
    if not served:
        return []
    return [
        "<details><summary>Latency of the runs that served</summary>",
        "",
        "| flow | stack | metric | runs | P50 | P95 | P99 |",
        "|---|---|---|--:|--:|--:|--:|",
        *map(_latency_row, served),
        "",
        f"Percentiles by {report.percentile_method}.",
        "",
        "</details>",
    ]


def _latency_row(latency: Latency) -> str:
    values = [duration(percentile.value) for percentile in latency.percentiles]
    metric = {"first": "first event", "text": "first text", "end": "last event"}[latency.metric]
    cells = [latency.flow, latency.stack, metric, f"{latency.runs:,}", *values]
    return f"| {' | '.join(cells)} |"
