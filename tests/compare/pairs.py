"""Pairs of runs and what is found between them, for the tests of comparing."""

from __future__ import annotations

from collections.abc import Iterable

from compare.comparison import Comparer
from compare.findings import Finding, kind_of
from compare.input.pairing import Pair, pair_of
from compare.tally import Tally
from contract.flows.chat import CHAT
from contract.records import RunRecord
from contract.wire.dialect import Wire


def paired(*runs: RunRecord) -> Pair:
    """Return the pair of an exchange that has one."""
    pair = pair_of(runs)
    assert isinstance(pair, Pair), pair
    return pair


def findings(*runs: RunRecord, wire: Wire = CHAT) -> tuple[Finding, ...]:
    """Compare the runs of an exchange."""
    return Comparer(wire).compare(paired(*runs))


def causes(found: Iterable[Finding]) -> list[tuple[str, str]]:
    """List (layer, kind) of findings that follow from no other."""
    return [(f.layer, kind_of(f)) for f in found if f.after is None]


def cluster_kinds(tally: Tally) -> list[str]:
    """Name the kinds of causes in a tally."""
    return sorted(cluster.kind for cluster in tally.clusters.by_key.values())
