"""What keeps entries and their vectors, as the long-term memory above it sees it."""

from __future__ import annotations

from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contract.stores import MemoryEntry, Recall
    from effects.embeddings import Vector, Vectors
    from effects.whose import Whose

By = Literal["vectors", "vectors_and_text", "text"]
"""How entries were found: all by vectors, those without one by full text, or all by full text."""


class Stored(NamedTuple):
    """An entry that is kept; a seq may be another entry's later: user and text tell them apart."""

    seq: int
    user_id: str
    text: str


class Found(NamedTuple):
    """Entries, best first; `waiting` says that some of the user's have no vector yet."""

    entries: tuple[MemoryEntry, ...]
    by: By
    waiting: bool


class Shelf(Protocol):
    """Keeps entries, and the vectors one maker made of them; every method raises `EffectFailed`."""

    @property
    def fault(self) -> str | None:
        """Why nobody waits for it now; None where it answers."""
        ...

    async def by_text(self, query: Recall, terms: Sequence[str]) -> tuple[MemoryEntry, ...]:
        """Find by full text."""
        ...

    async def by_vector(self, query: Recall, terms: Sequence[str], vector: Vector) -> Found:
        """Find by vectors, and by full text what has none of the maker's."""
        ...

    async def add(self, entries: Sequence[MemoryEntry]) -> list[Stored]:
        """Keep all entries or none; gives those that are new, which wait for their vectors."""
        ...

    async def keep(self, stored: Sequence[Stored], vectors: Vectors) -> None:
        """Keep the vectors of entries, but of those that have been forgotten meanwhile."""
        ...

    async def waiting(self, after: int, limit: int) -> list[Stored]:
        """Give entries that wait for the maker's vector, by seq."""
        ...

    async def forget(self, whose: Whose) -> int:
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
