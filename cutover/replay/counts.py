"""Counts: what became of the captured exchanges; counts of parts merge into those of the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from compare import Damage

NAMED_AT_MOST = 20


class Counts(msgspec.Struct):
    """Exchanges: all were `replayed` or `skipped`, all replayed were `equal` or `different`.

    `compared` counts by what was compared with what, `outcomes` by how the replay ended;
    `damaged` counts lines and batches; `named` says which were the first that were passed over.
    """

    exchanges: int = 0
    equal: int = 0
    different: int = 0
    skipped: dict[str, int] = {}
    compared: dict[str, int] = {}
    outcomes: dict[str, int] = {}
    damaged: dict[str, int] = {}
    named: list[str] = []

    @property
    def replayed(self) -> int:
        """How many were run and compared."""
        return self.equal + self.different

    def skip(self, exchange: str, reason: str) -> None:
        """Count an exchange that was not replayed."""
        self.exchanges += 1
        _add(self.skipped, reason, 1)
        self._name(f"{exchange}: {reason}")

    def compare(self, basis: str, outcome: str, *, equal: bool) -> None:
        """Count an exchange that was replayed and compared."""
        self.exchanges += 1
        _add(self.compared, basis, 1)
        _add(self.outcomes, outcome, 1)
        if equal:
            self.equal += 1
        else:
            self.different += 1

    def damage(self, damage: Damage) -> None:
        """Count a line or a batch that cannot be read."""
        self.unreadable(damage.kind, f"{damage.place}: {damage.detail}")

    def unreadable(self, kind: str, name: str) -> None:
        """Count something that cannot be read."""
        _add(self.damaged, kind, 1)
        self._name(f"{kind}: {name}")

    def merge(self, other: Counts) -> None:
        """Take in the counts of another part."""
        self.exchanges += other.exchanges
        self.equal += other.equal
        self.different += other.different
        for mine, theirs in (
            (self.skipped, other.skipped),
            (self.compared, other.compared),
            (self.outcomes, other.outcomes),
            (self.damaged, other.damaged),
        ):
            for key, count in theirs.items():
                _add(mine, key, count)
        self.named = (self.named + other.named)[:NAMED_AT_MOST]

    def _name(self, name: str) -> None:
        if len(self.named) < NAMED_AT_MOST:
            self.named.append(name)


def _add(counts: dict[str, int], key: str, count: int) -> None:
    counts[key] = counts.get(key, 0) + count
