"""Kinds: counts by names that whoever wrote the captures may have chosen; bounded."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from compare.findings import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS_AT_MOST = 100
NAME_AT_MOST = 200
OTHERS = "others"


class Kinds(Counter[str]):
    """How many of each kind; beyond `KINDS_AT_MOST` kinds, further ones are `OTHERS`."""

    def count(self, name: str, times: int = 1) -> None:
        """Count so many of a kind; a long name is shortened."""
        kind = shortened(name, NAME_AT_MOST)
        self[kind if kind in self or len(self) < KINDS_AT_MOST else OTHERS] += times

    def merge(self, other: Mapping[str, int]) -> None:
        """Take in the counts of another part."""
        for name, times in other.items():
            self.count(name, times)
