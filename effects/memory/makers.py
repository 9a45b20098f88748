"""Whose vectors a memory holds: those of one model are never compared with those of another."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from effects.looks import LOOK_SECONDS, read_only

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VECTORS_BY_MAKER = "SELECT made_by, count(*) FROM memory_vectors GROUP BY made_by"
ENTRIES = "SELECT count(*) FROM memories"


class Made(NamedTuple):
    """How many entries there are, and how many vectors by whom."""

    entries: int
    vectors: Mapping[str, int]

    def lacking(self, maker: str) -> str:
        """Say how many entries have no vector of a maker's, and whose there are; "" if all have."""
        missing = self.entries - self.vectors.get(maker, 0)
        if missing <= 0:
            return ""
        others = ", ".join(repr(other) for other in sorted(self.vectors) if other != maker)
        kept = f"; vectors of {others} are not compared with its" if others else ""
        return (
            f"{missing} of {self.entries} entries have none of {maker!r} yet, "
            f"and are found by full text until it has made them{kept}"
        )


def made_in_file(path: Path) -> Made | None:
    """Count what an SQLite file holds; None where it cannot be read, or has no such tables yet."""
    try:
        with closing(sqlite3.connect(read_only(path), timeout=LOOK_SECONDS, uri=True)) as file:
            vectors = dict(file.execute(VECTORS_BY_MAKER).fetchall())
            return Made(file.execute(ENTRIES).fetchone()[0], vectors)
    except sqlite3.Error:
        return None
