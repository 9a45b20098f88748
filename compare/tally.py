"""Tally: the mergeable result of comparing one part of the captures."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from compare.clusters import Clusters
from compare.damage import NAMED_AT_MOST, Damage
from compare.kinds import OTHERS, Kinds
from compare.noise.control import NO_CHECK, ControlCheck
from compare.pairs import STACKS, basis_of, sides_of

if TYPE_CHECKING:
    from compare.glances import Glance
    from compare.layers.timing import Times
    from compare.pairs import Kind, Sides
    from contract.records import RunRecord


SERIES_AT_MOST = 300


class Series(NamedTuple):
    """Which times belong together: `metric` is `first`, `text` or `end`."""

    flow: str
    stack: str
    role: str
    metric: str


@dataclass(slots=True)
class Tally:
    """Counts, clusters, damage and times. Times take 8 bytes each, all else is bounded.

    `bases` counts pairs with a replay by what was compared with what, `alone` pairs of one stack
    by the stack; `control` holds legacy against legacy on one tape. In `own_answers` of the pairs a
    shadow asked the model itself; `drift` is that of its own conversations, by depth.
    """

    exchanges: int = 0
    pairs: int = 0
    equal: int = 0
    different: int = 0
    equal_by_rules: int = 0
    own_answers: int = 0
    drift: Counter[tuple[int, bool]] = field(default_factory=Counter)
    rule_hits: Counter[str] = field(default_factory=Counter)
    bases: Kinds = field(default_factory=Kinds)
    alone: Kinds = field(default_factory=Kinds)
    not_comparable: Kinds = field(default_factory=Kinds)
    damage: Counter[str] = field(default_factory=Counter)
    named: list[Damage] = field(default_factory=list)
    clusters: Clusters = field(default_factory=Clusters)
    times: defaultdict[Series, array[int]] = field(default_factory=lambda: defaultdict(_series))
    control: ControlCheck = NO_CHECK
    first_seen: int = 0
    last_seen: int = 0

    def damaged(self, damage: Damage) -> None:
        """Count what was passed over, and name the first of it."""
        self.damage[damage.kind] += 1
        if len(self.named) < NAMED_AT_MOST:
            self.named.append(damage)

    def seen(self, began: int) -> None:
        """Note when an exchange began."""
        self.first_seen = min(self.first_seen or began, began)
        self.last_seen = max(self.last_seen, began)

    def paired(self, control: Kind, candidate: Kind) -> None:
        """Count a pair that is compared."""
        self.pairs += 1
        basis = basis_of(control, candidate)
        if basis:
            self.bases.count(basis)
        if control.stack == candidate.stack:
            self.alone.count(control.stack)

    @property
    def sides(self) -> Sides:
        """What both runs of every pair are called; of mixed pairs, the stacks."""
        one = next(iter(self.alone), "")
        return sides_of(one, one) if self.pairs and self.alone[one] == self.pairs else STACKS

    def timed(self, run: RunRecord | Glance, times: Times) -> None:
        """Collect one run's times."""
        for metric, value in (("first", times.first), ("text", times.text), ("end", times.end)):
            if value is not None:
                self._series(Series(run.flow, run.stack, run.role, metric)).append(value)

    def _series(self, series: Series) -> array[int]:
        """Find a series, or begin it; beyond `SERIES_AT_MOST`, stacks are no longer told apart."""
        if series not in self.times and len(self.times) >= SERIES_AT_MOST:
            return self.times[series._replace(stack=OTHERS)]
        return self.times[series]

    def merge(self, other: Tally) -> None:
        """Take in the tally of another part."""
        self.exchanges += other.exchanges
        self.pairs += other.pairs
        self.equal += other.equal
        self.different += other.different
        self.equal_by_rules += other.equal_by_rules
        self.own_answers += other.own_answers
        self.drift += other.drift
        self.rule_hits += other.rule_hits
        self.bases.merge(other.bases)
        self.alone.merge(other.alone)
        self.not_comparable.merge(other.not_comparable)
        self.damage += other.damage
        self.named = (self.named + other.named)[:NAMED_AT_MOST]
        self.clusters.merge(other.clusters)
        self.control = self.control.merged(other.control)
        for series, values in other.times.items():
            self._series(series).extend(values)
        if other.exchanges:
            self.seen(other.first_seen)
            self.seen(other.last_seen)


def _series() -> array[int]:
    return array("q")
