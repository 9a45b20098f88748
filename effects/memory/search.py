"""Vectors made later: of entries written while the embedder failed, or before there was one."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from contextlib import asynccontextmanager
from contextvars import Context
from typing import TYPE_CHECKING, Final

from contract.errors import EffectFailed
from effects.memory import terms
from effects.memory.store import check_entry, check_query
from effects.stores.values import require_storable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from contract.stores import MemoryEntry, Recall
    from effects.memory.embeddings import Embedder, Vector
    from effects.memory.store import EntryStore, StoredEntry
    from effects.stores.values import DataSubject


log = logging.getLogger(__name__)

BATCH: Final = 64
FIRST_REST: Final = 1.0
LONGEST_REST: Final = 300.0
_SEQS: Final = 1 << 20


class VectorBackfill:
    """Makes the vectors that are due, in the background, whenever it is woken.

    Several processes may: each begins somewhere else (`draw` gives numbers from 0 to 1), and a
    vector is kept once.
    """

    def __init__(
        self, shelf: EntryStore, embedder: Embedder, draw: Callable[[], float] = random.random
    ) -> None:
        self._shelf = shelf
        self._embedder = embedder
        self._draw = draw
        self._due = asyncio.Event()
        self._rest = FIRST_REST
        # By their hashes: the texts of somebody who is forgotten are kept nowhere.
        self._refused: set[int] = set()
        self._over = asyncio.Event()

    def wake(self) -> None:
        """Say that vectors are due."""
        self._due.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Catch up until it is left."""
        task = asyncio.get_running_loop().create_task(
            self._run(), name="memory: catching up", context=Context()
        )
        try:
            yield
        finally:
            # A pool of connections may swallow the cancellation that meets its answer.
            self._over.set()
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while not self._over.is_set():
            await self._due.wait()
            self._due.clear()
            await self._pass(int(self._draw() * _SEQS))
            await self._pass(0)

    async def _pass(self, after: int) -> None:
        """Go once through what waits; a text the embedder refuses is passed over from then on."""
        size = BATCH
        while (batch := await self._waiting(after, size)) and not self._over.is_set():
            outcome = await self._try([one for one in batch if hash(one) not in self._refused])
            if self._over.is_set():
                return
            if outcome == "later":
                await asyncio.sleep(self._rest)
                self._rest = min(2 * self._rest, LONGEST_REST)
            elif outcome == "refused" and len(batch) > 1:
                size = 1  # one of them: which?
            else:
                if outcome == "refused":
                    self._refused.update(map(hash, batch))
                    size = BATCH
                after = batch[-1].seq

    async def _waiting(self, after: int, size: int) -> list[StoredEntry]:
        try:
            return await self._shelf.waiting(after, size)
        except EffectFailed as failed:
            # Whoever recalls next wakes it again.
            log.warning("memory: what waits for vectors is not known: %s", failed.fault.code)
            return []

    async def _try(self, stored: list[StoredEntry]) -> str:
        if not stored:
            return "done"
        try:
            await self._shelf.keep(stored, await self._embedder.embed([one.text for one in stored]))
        except EffectFailed as failed:
            fault = failed.fault
            log.warning("memory: %d vectors not made: %s", len(stored), fault.code)
            return "refused" if fault.code in _ABOUT_THE_TEXT else "later"
        self._rest = FIRST_REST
        return "done"


_ABOUT_THE_TEXT: Final = frozenset(
    {"model_bad_request", "model_context_length", "model_content_policy"}
)


class LongTermMemory:
    """Implements `contract.ports.Memory` over a shelf and, if there is one, an embedder.

    `recalls` counts how entries were found, `failures` the faults of the embedder by their codes.
    """

    def __init__(self, shelf: EntryStore, embedder: Embedder | None = None) -> None:
        self._shelf = shelf
        self._embedder = embedder
        self._catching_up = VectorBackfill(shelf, embedder) if embedder else None
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

    async def erase(self, subject: DataSubject) -> int:
        """Remove what is known of a user, or was learnt in a chat; returns how many entries."""
        require_storable("memory_failed", subject.value)
        return await self._shelf.erase(subject)

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

    async def _embed(self, embedder: Embedder, stored: list[StoredEntry]) -> None:
        try:
            await self._shelf.keep(stored, await embedder.embed([one.text for one in stored]))
        except EffectFailed as failed:
            self._failed(failed, "stored, the vectors will be made later")
            self._wake()

    def _failed(self, failed: EffectFailed, done: str) -> None:
        self.failures[failed.fault.code] += 1
        log.warning("memory: no vectors (%s); %s", failed.fault.code, done)

    def _wake(self) -> None:
        if self._catching_up is not None:
            self._catching_up.wake()
