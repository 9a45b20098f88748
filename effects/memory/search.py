"""Long-term memory: found by vectors where there are any, by full text where there are none."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from importlib import import_module
from pathlib import Path
from typing import Final, Literal

from contract.errors import EffectFailed
from contract.stores import (
    DataSubject,
    FindNear,
    MemoryEntry,
    NearEntries,
    NearEntry,
    Reading,
    Recall,
    Revision,
    require_storable,
)
from effects.memory.embeddings import Embedder, Vector, Vectors
from effects.memory.sqlite import SqliteEntries
from effects.memory.store import (
    EntryStore,
    StoredEntry,
    check_entry,
    check_query,
    check_reading,
    check_revision,
    query_terms,
    recalls_of,
)

log = logging.getLogger(__name__)

BATCH: Final = 64
FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 300.0
_SEQS: Final = 1 << 20
_DECIMALS: Final = 4
"""Of similarities: stores of half precision return the same."""
_FAULTS_OF_TEXT: Final = frozenset(
    {"model_bad_request", "model_context_length", "model_content_policy"}
)


@asynccontextmanager
async def open_memory(
    place: str | Path,
    embedder: Embedder | None = None,
    *,
    least: float = 0.0,
    limit: float | None = None,
) -> AsyncIterator[LongTermMemory]:
    """Open the memory in an SQLite file (a path or `sqlite:///` address) or a `postgresql://` one.

    With an embedder entries are found by its vectors, if they are more like than `least`; by full
    text where a server has no pgvector. `limit` in seconds is what a call to a server waits and
    takes, `CALL_SECONDS` if None; the rest is as with `open_database`.
    """
    async with open_entries(place, embedder, least=least, limit=limit) as store:
        memory = LongTermMemory(store)
        async with memory.running():
            yield memory


def open_entries(
    place: str | Path,
    embedder: Embedder | None,
    *,
    least: float = 0.0,
    limit: float | None = None,
) -> AbstractAsyncContextManager[EntryStore]:
    """Open the store of a memory, as `open_memory` does; it makes no vectors by itself."""
    if str(place).partition("://")[0] == "postgresql":
        adapter = import_module("effects.memory.postgres").PostgresEntries  # an extra
        opened: AbstractAsyncContextManager[EntryStore] = adapter.open(
            place, embedder, least, limit
        )
        return opened
    return SqliteEntries.open(place, embedder, least)


class LongTermMemory:
    """Implements `contract.ports.Memory` over a store and, if that has one, its embedder.

    `recalls` counts how entries were found, `failures` the faults of the embedder by their codes.
    """

    def __init__(self, store: EntryStore) -> None:
        self._store = store
        self._backfill = VectorBackfill(store, store.embedder) if store.embedder else None
        self.recalls: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()

    @property
    def fault(self) -> str | None:
        """Why the store is not called now; None while it answers."""
        return self._store.fault

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Make the vectors that are due in the background, until it is closed."""
        if self._backfill is None:
            yield
            return
        async with self._backfill.running():
            self._backfill.wake()
            yield

    async def recall(self, site: str, query: Recall) -> tuple[MemoryEntry, ...]:
        """Find what is like the query, best first."""
        check_query(query)
        if query.limit <= 0 or not query.query.strip():
            return ()
        vectors = await self._vectors([query.query])
        found = await self._find(query, None if vectors is None else vectors[0])
        return tuple(near.entry for near in found)

    async def near(self, site: str, query: FindNear) -> NearEntries:
        """Find what is like each of several texts, and how like; their vectors are made at once."""
        recalls = recalls_of(query)
        for recall in recalls:
            check_query(recall)
        if query.limit <= 0 or not recalls:
            return NearEntries(tuple(() for _ in recalls))
        vectors = await self._vectors(query.texts)
        matches = [
            await self._find(recall, None if vectors is None else vectors[number])
            for number, recall in enumerate(recalls)
        ]
        return NearEntries(
            tuple(
                tuple(NearEntry(one.entry, _rounded(one.similarity)) for one in found)
                for found in matches
            ),
            () if vectors is None else _similarities(vectors),
        )

    async def _find(self, query: Recall, vector: Vector | None) -> tuple[NearEntry, ...]:
        """Find by a vector, or where there is none by full text."""
        words = query_terms(query.query)
        if vector is None:
            self.recalls["text"] += 1
            return await self._store.by_text(query, words) if words else ()
        found = await self._store.by_vector(query, words, vector)
        self.recalls[found.by] += 1
        if found.waiting and self._backfill is not None:
            self._backfill.wake()
        return found.entries

    async def progress(self, site: str, reading: Reading) -> str | None:
        """Return the message up to which a conversation has been read."""
        check_reading(reading)
        return await self._store.progress(reading)

    async def write(
        self, site: str, entries: tuple[MemoryEntry, ...], revision: Revision | None = None
    ) -> int:
        """Store all entries or none; returns how many were new, now or when this write was made.

        Where the embedder fails they are stored all the same, and their vectors made later.
        """
        for entry in entries:
            check_entry(entry)
        check_revision(revision)
        if not entries and revision is None:
            return 0
        stored, repeated = await self._store.add(entries, revision)
        if stored and self._backfill is not None:
            try:
                await self._backfill.make(stored)
            except EffectFailed as failed:
                self._failed(failed, "stored, the vectors will be made later")
                self._backfill.wake()
        return len(stored) + repeated

    async def erase(self, subject: DataSubject) -> int:
        """Remove what is known of a user, or was learnt in a chat; returns how many entries."""
        require_storable("memory_failed", subject.value)
        return await self._store.erase(subject)

    async def aclose(self) -> None:
        """Close the store; idempotent."""
        await self._store.aclose()

    async def _vectors(self, texts: Sequence[str]) -> Vectors | None:
        """Make the vectors of texts; None without an embedder, or where it fails."""
        if self._store.embedder is None:
            return None
        try:
            return await self._store.embedder.embed(texts)
        except EffectFailed as failed:
            self._failed(failed, "recalled by full text")
            return None

    def _failed(self, failed: EffectFailed, consequence: str) -> None:
        self.failures[failed.fault.code] += 1
        log.warning("memory: no vectors (%s); %s", failed.fault.code, consequence)


def _rounded(similarity: float | None) -> float | None:
    return None if similarity is None else round(similarity, _DECIMALS)


def _similarities(vectors: Vectors) -> tuple[tuple[float, ...], ...]:
    """Return the similarities of each vector to those before it."""
    scores = (vectors @ vectors.T).tolist()
    return tuple(
        tuple(round(score, _DECIMALS) for score in row[:number])
        for number, row in enumerate(scores)
    )


class VectorBackfill:
    """Makes vectors in the background, of entries stored without: the embedder failed, or is new.

    Several processes may: each begins somewhere else (`draw` returns numbers from 0 to 1), and a
    vector is stored once.
    """

    def __init__(
        self, store: EntryStore, embedder: Embedder, draw: Callable[[], float] = random.random
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._draw = draw
        self._due = asyncio.Event()
        self._wait = FIRST_WAIT
        # By their hashes: an erased text must not stay in memory.
        self._refused: set[int] = set()
        self._closing = asyncio.Event()

    def wake(self) -> None:
        """Look for entries without vectors."""
        self._due.set()

    async def make(self, stored: list[StoredEntry]) -> None:
        """Make the vectors of entries, and store them; raises `EffectFailed`."""
        await self._store.keep(stored, await self._embedder.embed([one.text for one in stored]))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run until it is closed."""
        task = asyncio.get_running_loop().create_task(
            self._run(), name="memory: backfill", context=Context()
        )
        try:
            yield
        finally:
            # A pool of connections may swallow the cancellation that meets its answer.
            self._closing.set()
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while not self._closing.is_set():
            await self._due.wait()
            self._due.clear()
            await self._pass(int(self._draw() * _SEQS))
            await self._pass(0)

    async def _pass(self, after: int) -> None:
        """Go once through what waits; a text the embedder refuses is skipped from then on."""
        size = BATCH
        while (batch := await self._waiting(after, size)) and not self._closing.is_set():
            outcome = await self._try([one for one in batch if hash(one) not in self._refused])
            if self._closing.is_set():
                return
            if outcome == "later":
                await asyncio.sleep(self._wait)
                self._wait = min(2 * self._wait, LONGEST_WAIT)
            elif outcome == "refused" and len(batch) > 1:
                size = 1  # one of them: which?
            else:
                if outcome == "refused":
                    self._refused.update(map(hash, batch))
                    size = BATCH
                after = batch[-1].seq

    async def _waiting(self, after: int, size: int) -> list[StoredEntry]:
        try:
            return await self._store.waiting(after, size)
        except EffectFailed as failed:
            # The next recall wakes it again.
            log.warning("memory: what waits for vectors is not known: %s", failed.fault.code)
            return []

    async def _try(self, stored: list[StoredEntry]) -> Literal["done", "later", "refused"]:
        if not stored:
            return "done"
        try:
            await self.make(stored)
        except EffectFailed as failed:
            code = failed.fault.code
            log.warning("memory: %d vectors not made: %s", len(stored), code)
            return "refused" if code in _FAULTS_OF_TEXT else "later"
        self._wait = FIRST_WAIT
        return "done"
