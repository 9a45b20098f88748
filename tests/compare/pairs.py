"""Pairs of runs and what is found between them, for the tests of comparing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from types import MappingProxyType

from compare.captures import Question, compare_segment
from compare.comparison import Comparer
from compare.findings import Finding, kind_of
from compare.input.pairing import Pair, pair_of
from compare.input.segments import CapturedLine
from compare.rules import NO_RULES, Rules
from compare.tally import Tally
from contract.flow import FlowSpec
from contract.flows.chat import CHAT
from contract.records import RunRecord, encode_run
from contract.wire.dialect import Wire

Flows = Mapping[str, FlowSpec]
CHATS: Flows = MappingProxyType({"chat": CHAT})


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


def tallied(
    *exchanges: tuple[RunRecord, ...], rules: Rules = NO_RULES, flows: Flows = CHATS
) -> Tally:
    """Compare exchanges as they are captured, as one segment in memory."""
    return tallied_lines(b"".join(map(encode_run, chain(*exchanges))), rules, flows)


def tallied_lines(captured: bytes, rules: Rules = NO_RULES, flows: Flows = CHATS) -> Tally:
    """Compare captured lines."""
    numbered = (CapturedLine(k, line) for k, line in enumerate(captured.splitlines(), 1))
    return compare_segment(numbered, "memory", Question(flows, rules=rules))


def cluster_kinds(tally: Tally) -> list[str]:
    """Name the kinds of causes in a tally."""
    return sorted(cluster.kind for cluster in tally.clusters.by_key.values())
