"""Long-term memory: found by vectors where there are any, by full text where there are none."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from contract.errors import EffectFailed
from effects.memory import terms
from effects.memory.catching_up import CatchingUp
from effects.memory.entries import check_entry, check_query
from effects.storable import require_storable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from contract.stores import MemoryEntry, Recall
    from effects.embeddings import Embedder, Vector
    from effects.memory.shelf import Shelf, Stored
    from effects.whose import Whose

_LOG: Final = logging.getLogger(__name__)


class LongTermMemory:
    """Implements `contract.ports.Memory` over a shelf and, if there is one, an embedder.

    `recalls` counts how entries were found, `failures` the faults of the embedder by their codes.
    """

    def __init__(self, shelf: Shelf, embedder: Embedder | None = None) -> None:
        self._shelf = shelf
        self._embedder = embedder
        self._catching_up = CatchingUp(shelf, embedder) if embedder else None
        self.recalls: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()

    @property
    def fault(self) -> str | None:
        """Why nobody waits for the store now; None where it answers."""
        return self._shelf.fault

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Make the vectors that are due, in the background, until it is left."""
        if self._catching_up is None:
            yield
            return
        async with self._catching_up.running():
            self._catching_up.wake()
            yield

    async def recall(self, site: str, query: Recall) -> tuple[MemoryEntry, ...]:
        """Find what is like the query, best first."""
        check_query(query)
        wanted = terms.of_query(query.query)
        if query.limit <= 0 or not query.query.strip():
            return ()
        vector = await self._vector(query.query)
        if vector is None:
            self.recalls["text"] += 1
            return await self._shelf.by_text(query, wanted) if wanted else ()
        found = await self._shelf.by_vector(query, wanted, vector)
        self.recalls[found.by] += 1
        if found.waiting:
            self._wake()
        return found.entries

    async def write(self, site: str, entries: tuple[MemoryEntry, ...]) -> int:
        """Remember all entries or none; returns how many were new.

        Where the embedder fails they are remembered all the same, and their vectors made later.
        """
        for entry in entries:
            check_entry(entry)
        stored = await self._shelf.add(entries) if entries else []
        if stored and self._embedder is not None:
            await self._embed(self._embedder, stored)
        return len(stored)

    async def forget(self, whose: Whose) -> int:
        """Remove what is known of a user, or was learnt in a chat; returns how many entries."""
        require_storable("memory_failed", whose.value)
        return await self._shelf.forget(whose)

    async def aclose(self) -> None:
        """Close the store; idempotent."""
        await self._shelf.aclose()

    async def _vector(self, text: str) -> Vector | None:
        """Make the query's vector; None where nobody can."""
        if self._embedder is None:
            return None
        try:
            vectors = await self._embedder.embed([text])
        except EffectFailed as failed:
            self._failed(failed, "recalled by full text")
            return None
        vector: Vector = vectors[0]
        return vector

    async def _embed(self, embedder: Embedder, stored: list[Stored]) -> None:
        try:
            await self._shelf.keep(stored, await embedder.embed([one.text for one in stored]))
        except EffectFailed as failed:
            self._failed(failed, "stored, the vectors will be made later")
            self._wake()

    def _failed(self, failed: EffectFailed, done: str) -> None:
        self.failures[failed.fault.code] += 1
        _LOG.warning("memory: no vectors (%s); %s", failed.fault.code, done)

    def _wake(self) -> None:
        if self._catching_up is not None:
            self._catching_up.wake()
