"""Tally: the mergeable result of comparing one part of the captures."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from compare.causes.live_answers import own_answers, own_history
from compare.clusters import OTHERS, Clusters, Kinds, exemplar_of
from compare.comparison import Comparer
from compare.findings import Finding, RefusalAsText, TextChanged, signature_of, tells_apart
from compare.input.captures import CapturedExchange, Exchange, new_series
from compare.input.damage import NAMED_AT_MOST, UNBOUNDED, DamageTally
from compare.input.outcomes import ServedTally
from compare.input.pairing import REPLAY, STACKS, Pair, Sides, sides_of
from compare.input.selection import EVERYTHING, Selection
from compare.noise.control import NO_CHECK, ControlCheck
from compare.noise.messages import NoiseTally
from compare.streams.soundness import StreamTimes
from contract.normalisation import Fold
from contract.records import RunRecord
from evidence.in_force import PairRow, RunCode
from evidence.outcomes import OutcomeTotals

SERIES_AT_MOST = 300
DEEPEST: Final = 20
"""Own answers that are counted one by one; conversations with more count with these."""


class Series(NamedTuple):
    """Which times belong together: `metric` is `first`, `text` or `end`."""

    flow: str
    stack: str
    role: str
    metric: str


class Drift(msgspec.Struct, frozen=True):
    """Of the pairs whose shadow read `answers` of its own, how many texts differ.

    `answers` of 20 are 20 and more.
    """

    answers: int
    pairs: int
    differ: int


@dataclass(slots=True)
class UnselectedExchanges:
    """Exchanges that were not selected: how many, when they began, under which configurations."""

    exchanges: int = 0
    first: int = 0
    last: int = 0
    configurations: Kinds = field(default_factory=Kinds)

    def add(self, runs: Exchange) -> None:
        """Count an exchange."""
        self._span(runs[0].began, runs[0].began, 1)
        self.configurations.count(runs[0].config)

    def merge(self, other: UnselectedExchanges) -> None:
        """Take in what was left out of another part."""
        if other.exchanges:
            self._span(other.first, other.last, other.exchanges)
            self.configurations.merge(other.configurations)

    def _span(self, first: int, last: int, exchanges: int) -> None:
        self.first = min(self.first, first) if self.exchanges else first
        self.last = max(self.last, last) if self.exchanges else last
        self.exchanges += exchanges


@dataclass(slots=True)
class Tally(DamageTally):
    """Counts, clusters, damage and times. Times take 8 bytes each, all else is bounded.

    Of the `equal` pairs, both runs of the `unsound` break their grammar alike. `by_flow` counts the
    pairs of each flow, `folds` those in which the runs' calls were written in different forms, by
    what was folded. `bases` counts pairs with a replay by what was compared with what, `alone`
    pairs of one stack by the stack; `control` holds legacy against legacy on one tape. In
    `own_answers` of the pairs a shadow asked the model itself, and in `untaped` ones each stack
    did; `drift` counts those with conversations of its own, by how many answers of its own it read
    and whether texts differ. `own_histories` exchanges are of conversations that each stack stores
    itself. Of the exchanges that are not comparable, `missing` lack a run they must have;
    `unshadowed` have no second run, by the state and reason that the ledger has for it.
    `outcomes` are those of all selected exchanges of known flows, whatever became of their pairs.
    `identities` are those of the exchanges of one part, to count each once, and `halves` those of
    which a run may stand in another part; a merged tally has none. `left_out` are the exchanges
    that are not in the `selection`. Where it is asked for, `served` is what clients were served and
    `compared` has the pairs one by one; `noise` has the messages that show noise.
    """

    exchanges: int = 0
    pairs: int = 0
    by_flow: Counter[str] = field(default_factory=Counter)
    equal: int = 0
    different: int = 0
    unsound: int = 0
    equal_by_rules: int = 0
    own_answers: int = 0
    untaped: int = 0
    own_histories: int = 0
    missing: int = 0
    identities: array[int] = field(default_factory=new_series)
    halves: list[CapturedExchange] = field(default_factory=list)
    drift: Counter[tuple[int, bool]] = field(default_factory=Counter)
    rule_hits: Counter[str] = field(default_factory=Counter)
    folds: Counter[Fold] = field(default_factory=Counter)
    bases: Kinds = field(default_factory=Kinds)
    alone: Kinds = field(default_factory=Kinds)
    not_comparable: Kinds = field(default_factory=Kinds)
    unshadowed: Kinds = field(default_factory=Kinds)
    clusters: Clusters = field(default_factory=Clusters)
    times: defaultdict[Series, array[int]] = field(default_factory=lambda: defaultdict(new_series))
    selection: Selection = EVERYTHING
    left_out: UnselectedExchanges = field(default_factory=UnselectedExchanges)
    outcomes: OutcomeTotals = field(default_factory=OutcomeTotals)
    served: ServedTally = field(default_factory=ServedTally)
    compared: list[PairRow] = field(default_factory=list)
    noise: NoiseTally = field(default_factory=NoiseTally)
    control: ControlCheck = NO_CHECK
    first_seen: int = 0
    last_seen: int = 0

    @property
    def lost(self) -> int:
        """Pairs that should be there and are missing, unreadable or duplicated, at least."""
        return self.missing + self.runs_damaged

    @property
    def lost_share(self) -> float:
        """The share of the pairs that should be there which is `lost`; 1 where no end is known."""
        if any(self.damage[kind] for kind in UNBOUNDED):
            return 1.0
        due = self.pairs + self.lost
        return self.lost / due if due else 0.0

    def seen(self, began: int) -> None:
        """Note when an exchange began."""
        self.first_seen = min(self.first_seen or began, began)
        self.last_seen = max(self.last_seen, began)

    @property
    def sides(self) -> Sides:
        """What both runs of every pair are called; of mixed pairs, the stacks."""
        one = next(iter(self.alone), "")
        return sides_of(one, one) if self.pairs and self.alone[one] == self.pairs else STACKS

    def timed(self, run: RunRecord, times: StreamTimes | None) -> None:
        """Collect one run's times."""
        if times is None:
            return
        for metric, value in (("first", times.first), ("text", times.text), ("end", times.end)):
            if value is not None:
                self._series(Series(run.flow, run.stack, run.role, metric)).append(value)

    def _series(self, series: Series) -> array[int]:
        """Find or begin a series; beyond `SERIES_AT_MOST`, stacks are no longer told apart."""
        known = self.times.get(series)
        if known is None and len(self.times) >= SERIES_AT_MOST:
            return self.times[series._replace(stack=OTHERS)]
        return self.times[series] if known is None else known

    def merge(self, other: Tally) -> None:
        """Take in the tally of another part."""
        self.exchanges += other.exchanges
        self.pairs += other.pairs
        self.by_flow += other.by_flow
        self.equal += other.equal
        self.different += other.different
        self.unsound += other.unsound
        self.equal_by_rules += other.equal_by_rules
        self.own_answers += other.own_answers
        self.untaped += other.untaped
        self.own_histories += other.own_histories
        self.missing += other.missing
        self.drift += other.drift
        self.rule_hits += other.rule_hits
        self.folds += other.folds
        self.damage += other.damage
        self.bases.merge(other.bases)
        self.alone.merge(other.alone)
        self.not_comparable.merge(other.not_comparable)
        self.named = (self.named + other.named)[:NAMED_AT_MOST]
        self.unshadowed.merge(other.unshadowed)
        self.left_out.merge(other.left_out)
        self.clusters.merge(other.clusters)
        self.outcomes.merge(other.outcomes)
        self.served.merge(other.served)
        self.compared += other.compared
        self.noise.merge(other.noise)
        self.control = self.control.merged(other.control)
        for series, values in other.times.items():
            self._series(series).extend(values)
        if other.exchanges:
            self.seen(other.first_seen)
            self.seen(other.last_seen)


def count_pair(
    tally: Tally,
    pair: Pair,
    comparer: Comparer,
    restored: Callable[[Pair], Pair] | None = None,
) -> tuple[Finding, ...]:
    """Compare a pair and count it as equal, by rules or unsound perhaps, or as different.

    Returns what was found in it.
    """
    tally.pairs += 1
    tally.by_flow[pair.flow] += 1
    if pair.basis:
        tally.bases.count(pair.basis)
    if pair.control.stack == pair.candidate.stack:
        tally.alone.count(pair.control.stack)
    ruled = comparer.ruled
    findings = comparer.compare(pair, restored)
    tally.folds.update(comparer.folded)
    tally.own_answers += own_answers(pair)
    count_drift(tally.drift, pair, findings)
    causes = [finding for finding in findings if finding.after is None]
    different = any(map(tells_apart, causes))  # not what may be the model's
    tally.different += different
    tally.equal += not different
    tally.equal_by_rules += not findings and ruled < comparer.ruled
    if not causes:
        return findings
    tally.unsound += not different
    tally.clusters.add(
        pair.flow,
        pair.began,
        findings,
        lambda: exemplar_of(pair, findings, comparer.reader, comparer.ruling),
    )
    return findings


def row_of(pair: Pair, findings: Iterable[Finding]) -> PairRow:
    """Return a pair as evidence: whose code ran, and the causes in it."""
    control, candidate = (
        RunCode(run.stack, run.code, run.role == REPLAY) for run in (pair.control, pair.candidate)
    )
    causes = dict.fromkeys(signature_of(one) for one in findings if one.after is None)
    return PairRow(pair.exchange, pair.began, (control, candidate), (*causes,))


def count_drift(depths: Counter[tuple[int, bool]], pair: Pair, findings: Iterable[Finding]) -> None:
    """Count a pair of a shadow with conversations of its own."""
    history = own_history(pair)
    if history is not None:
        differs = any(isinstance(finding, TextChanged | RefusalAsText) for finding in findings)
        depths[min(history.own, DEEPEST), differs] += 1


def drift_of(depths: Counter[tuple[int, bool]]) -> tuple[Drift, ...]:
    """Summarise the drift by how many answers of its own a shadow read."""
    return tuple(
        Drift(answers, depths[answers, False] + depths[answers, True], depths[answers, True])
        for answers in sorted({answers for answers, _ in depths})
    )


def drift_text(drift: Iterable[Drift]) -> str:
    """Describe the drift in a line."""
    depths = (
        f"{one.answers}{' and more' if one.answers == DEEPEST else ''}: {one.differ:,} of "
        f"{one.pairs:,}"
        for one in drift
    )
    return (
        f"texts that differ, by how many answers of its own a shadow was told: {', '.join(depths)}"
    )
