"""What keeps entries and their vectors, as the long-term memory above it sees it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from contract.stores import MemoryEntry
from effects.stores.sqlite import read_only
from effects.stores.values import require_storable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from contract.stores import Recall
    from effects.memory.embeddings import Vector, Vectors
    from effects.stores.values import DataSubject


RecallMethod = Literal["vectors", "vectors_and_text", "text"]
"""How entries were found: all by vectors, those without one by full text, or all by full text."""


class StoredEntry(NamedTuple):
    """An entry that is kept; a seq may be another entry's later: user and text tell them apart."""

    seq: int
    user_id: str
    text: str


class RecallResult(NamedTuple):
    """Entries, best first; `waiting` says that some of the user's have no vector yet."""

    entries: tuple[MemoryEntry, ...]
    by: RecallMethod
    waiting: bool


class EntryStore(Protocol):
    """Keeps entries, and the vectors one maker made of them; every method raises `EffectFailed`."""

    @property
    def fault(self) -> str | None:
        """Why nobody waits for it now; None where it answers."""
        ...

    async def by_text(self, query: Recall, terms: Sequence[str]) -> tuple[MemoryEntry, ...]:
        """Find by full text."""
        ...

    async def by_vector(self, query: Recall, terms: Sequence[str], vector: Vector) -> RecallResult:
        """Find by vectors, and by full text what has none of the maker's."""
        ...

    async def add(self, entries: Sequence[MemoryEntry]) -> list[StoredEntry]:
        """Keep all entries or none; gives those that are new, which wait for their vectors."""
        ...

    async def keep(self, stored: Sequence[StoredEntry], vectors: Vectors) -> None:
        """Keep the vectors of entries, but of those that have been forgotten meanwhile."""
        ...

    async def waiting(self, after: int, limit: int) -> list[StoredEntry]:
        """Give entries that wait for the maker's vector, by seq."""
        ...

    async def erase(self, subject: DataSubject) -> int:
        """Remove entries with everything that was made of them; returns how many."""
        ...

    async def aclose(self) -> None:
        """Close; idempotent."""
        ...


def merged(
    by_vector: Sequence[MemoryEntry], by_text: Sequence[MemoryEntry], limit: int
) -> tuple[MemoryEntry, ...]:
    """Take from both in turn, the nearest vector first: their scores cannot be compared."""
    both = chain.from_iterable(zip_longest(by_vector, by_text))
    return tuple(entry for entry in both if entry is not None)[:limit]


COLUMNS: Final = "memory_id, user_id, text, session_id, relation, confidence"
"""The fields of an entry, as a table names them."""


def check_entry(entry: MemoryEntry) -> None:
    """Raise `EffectFailed(memory_failed)` where a text of the entry cannot be kept."""
    require_storable(
        "memory_failed",
        entry.memory_id,
        entry.user_id,
        entry.text,
        entry.session_id,
        entry.relation,
    )


def check_query(query: Recall) -> None:
    """Raise `EffectFailed(memory_failed)` where a text of the query could not have been kept."""
    require_storable(
        "memory_failed", query.user_id, query.query, query.except_session, query.relation
    )


def entry_of(row: Sequence[Any]) -> MemoryEntry:
    """Read an entry from its `COLUMNS`."""
    memory_id, user_id, text, session_id, relation, confidence = row
    return MemoryEntry(
        memory_id=memory_id,
        user_id=user_id,
        text=text,
        session_id=session_id,
        relation=relation,
        confidence=confidence,
    )


VECTORS_BY_MAKER = "SELECT made_by, count(*) FROM memory_vectors GROUP BY made_by"
ENTRIES = "SELECT count(*) FROM memories"


class VectorCounts(NamedTuple):
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


def made_in_file(path: Path) -> VectorCounts | None:
    """Count what an SQLite file holds; None where it cannot be read, or has no such tables yet."""
    try:
        with closing(read_only(path)) as file:
            vectors = dict(file.execute(VECTORS_BY_MAKER).fetchall())
            return VectorCounts(file.execute(ENTRIES).fetchone()[0], vectors)
    except sqlite3.Error:
        return None
