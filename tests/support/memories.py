"""Memories to look into: the same tables in SQLite and in PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import numpy as np

from contract.errors import EffectFailed, Fault
from contract.stores import MemoryEntry, Recall
from effects.memory import open_memory
from effects.memory.embeddings import Embedder, Vectors, maker
from effects.memory.fake import HashedEmbedder
from effects.memory.search import LongTermMemory
from tests.support.postgres import execute

TABLES = ("memories", "memory_vectors", "memory_waiting")


@dataclass(frozen=True, slots=True)
class Memories:
    """Memories at a place, opened as often as one likes."""

    place: str

    def open(self, embedder: Embedder | None) -> AbstractAsyncContextManager[LongTermMemory]:
        """Open the memory with an embedder, or without."""
        return open_memory(self.place, embedder)

    def read(self, query: str) -> list[tuple[object, ...]]:
        """Read the tables from outside."""
        return execute(self.place, query)

    def counts(self) -> list[object]:
        """Count entries, vectors and those that wait."""
        return [self.read(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES]

    async def settled(self, embedder: Embedder) -> None:
        """Wait until no entry waits for a vector of this embedder's."""
        query = f"SELECT 1 FROM memory_waiting WHERE made_by = '{maker(embedder)}'"
        while await asyncio.to_thread(self.read, query):
            pass


class Moody:
    """An embedder that fails while `fault` is set, and notes the texts it was asked for.

    `failed` is released once a failure.
    """

    def __init__(self, embedder: Embedder | None = None) -> None:
        self._embedder = embedder or HashedEmbedder()
        self.name = self._embedder.name
        self.dimensions = self._embedder.dimensions
        self.fault: Fault | None = None
        self.asked: list[str] = []
        self.failed = asyncio.Semaphore(0)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Make vectors, or fail."""
        self.asked += texts
        if self.fault is not None:
            self.failed.release()
            raise EffectFailed(self.fault)
        return await self._embedder.embed(texts)


class Compass:
    """An embedder of two dimensions: a text begins with its direction in degrees."""

    name = "compass"
    dimensions = 2

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Make a vector of each text."""
        turns = np.radians([float(text.split()[0]) for text in texts])
        return np.stack([np.cos(turns), np.sin(turns)], axis=1).astype(np.float32)


def entry(
    text: str, user_id: str = "u1", session_id: str | None = None, relation: str | None = None
) -> MemoryEntry:
    """Make an entry named after its text."""
    return MemoryEntry(
        memory_id=text, user_id=user_id, text=text, session_id=session_id, relation=relation
    )


async def told(memory: LongTermMemory, query: Recall | str) -> list[str]:
    """Recall, and give the texts."""
    asked = Recall(user_id="u1", query=query) if isinstance(query, str) else query
    return [found.text for found in await memory.recall("recall", asked)]
