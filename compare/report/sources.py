"""Sources of prompts in a report: which template and line a difference comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from compare.findings import PromptChanged, PromptSource
from compare.layers.prompt_sources import source_of

if TYPE_CHECKING:
    from compare.clusters import Exemplar
    from compare.findings import Finding
    from compare.prompt_map import PromptMap
    from compare.report.document import ClusterReport, Report


def with_sources(report: Report, known: PromptMap) -> Report:
    """Name the sources of prompts that differ, where templates of a map fit them."""
    clusters = tuple(_cluster(cluster, known) for cluster in report.clusters)
    return msgspec.structs.replace(report, clusters=clusters)


def _cluster(cluster: ClusterReport, known: PromptMap) -> ClusterReport:
    exemplars = tuple(_exemplar(exemplar, known) for exemplar in cluster.exemplars)
    return msgspec.structs.replace(cluster, exemplars=exemplars)


def _exemplar(exemplar: Exemplar, known: PromptMap) -> Exemplar:
    findings = tuple(_finding(finding, known) for finding in exemplar.findings)
    return msgspec.structs.replace(exemplar, findings=findings)


def _finding(finding: Finding, known: PromptMap) -> Finding:
    if not isinstance(finding, PromptChanged):
        return finding
    source = source_of(known, finding.legacy, finding.graph)
    return msgspec.structs.replace(finding, source=source)


def source_said(source: PromptSource) -> str:
    """Say where a difference comes from, in a line."""
    drawn = "" if source.file == source.template else f" (in {source.template})"
    if source.variable:
        what = f"the variable {source.variable!r}"
    elif source.computed:
        what = f"what is computed there ({source.computed})"
    else:
        what = "the template's own text"
    return f"{source.file}:{source.line}{drawn}: {what}"


def finding_source(finding: Finding) -> str:
    """Say where a finding comes from; "" where nobody knows."""
    source = finding.source if isinstance(finding, PromptChanged) else None
    return "" if source is None else source_said(source)
