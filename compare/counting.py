"""Counting: one pair compared, and what was found taken into a tally."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    """Count a compared pair by what was found; `draw` makes its exemplar, if one is wanted."""
    if not findings:
        tally.equal += 1
        return
    tally.different += 1
    tally.clusters.add(pair.flow, pair.began, findings, draw)
