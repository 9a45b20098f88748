"""Counting: one pair compared, and what was found taken into a tally."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compare.answers import own_answers
from compare.drift import count_drift
from compare.exemplars import exemplar_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from compare.clusters import Exemplar
    from compare.comparison import Comparer
    from compare.findings import Finding
    from compare.pairs import Pair
    from compare.tally import Tally


def count_pair(tally: Tally, pair: Pair, comparer: Comparer) -> None:
    """Compare a pair and count it as equal, equal by rules or different."""
    tally.paired(pair.control, pair.candidate)
    ruled = comparer.ruled
    findings = comparer.compare(pair)
    if not findings:
        tally.equal_by_rules += ruled < comparer.ruled
    count_findings(
        tally,
        pair,
        findings,
        lambda: exemplar_of(pair, findings, comparer.reader, comparer.ruling),
    )


def count_findings(
    tally: Tally, pair: Pair, findings: tuple[Finding, ...], draw: Callable[[], Exemplar]
) -> None:
    """Count a compared pair by the causes found; `draw` makes its exemplar, if one is wanted."""
    tally.own_answers += own_answers(pair)
    count_drift(tally.drift, pair, findings)
    if all(finding.after is not None for finding in findings):
        tally.equal += 1  # nothing, or nothing but what the model said
        return
    tally.different += 1
    tally.clusters.add(pair.flow, pair.began, findings, draw)
