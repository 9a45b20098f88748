"""Counting: one pair compared, and what was found taken into a tally."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compare.exemplars import exemplar_of

if TYPE_CHECKING:
    from compare.comparison import Comparer
    from compare.pairs import Pair
    from compare.tally import Tally


def count_pair(tally: Tally, pair: Pair, comparer: Comparer) -> None:
    """Compare a pair and count it as equal, equal by rules or different."""
    tally.paired(pair.control, pair.candidate)
    ruled = comparer.ruled
    findings = comparer.compare(pair)
    if not findings:
        tally.equal += 1
        tally.equal_by_rules += ruled < comparer.ruled
        return
    tally.different += 1
    tally.clusters.add(
        pair.flow,
        pair.began,
        findings,
        lambda: exemplar_of(pair, findings, comparer.reader, comparer.ruling),
    )
