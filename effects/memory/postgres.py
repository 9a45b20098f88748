"""Memory in PostgreSQL: entries, their terms, and vectors where the server has pgvector.

Texts are cut into the terms of `effects/memory/terms.py`, as in SQLite. Vectors are searched one by
one, a user's alone: exact, and no filter can starve the answer.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from contract.stores import MemoryEntry
from effects.codes import MEMORY_CODES
from effects.embeddings import maker
from effects.memory import terms
from effects.memory.entries import COLUMNS, entry_of
from effects.memory.longterm import LongTermMemory
from effects.memory.postgres_vectors import PostgresVectors, make_vector_tables
from effects.memory.shelf import Found, Stored, merged
from effects.postgres import PostgresPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from contract.stores import Recall
    from effects.embeddings import Embedder, Vector, Vectors
    from effects.postgres import Connection, Steps
    from effects.whose import Whose

_LOG: Final = logging.getLogger(__name__)
STEPS: Steps = (
    (
        """CREATE TABLE memories (
            seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, memory_id text NOT NULL,
            user_id text NOT NULL, text text NOT NULL, session_id text, relation text,
            confidence double precision, terms tsvector NOT NULL
        )""",
        # A text may be longer than what an index can hold.
        "CREATE UNIQUE INDEX memories_of_a_user ON memories (user_id, md5(text))",
        "CREATE INDEX memories_of_a_session ON memories (session_id)",
        "CREATE INDEX memory_terms ON memories USING gin (terms)",
        "CREATE TABLE memory_makers (made_by text PRIMARY KEY)",
        """CREATE TABLE memory_waiting (
            made_by text NOT NULL, user_id text NOT NULL,
            seq bigint NOT NULL REFERENCES memories ON DELETE CASCADE,
            PRIMARY KEY (made_by, user_id, seq)
        )""",
        "CREATE INDEX waiting_in_order ON memory_waiting (seq, made_by)",
    ),
)
_WRITE = f"""
INSERT INTO memories ({COLUMNS}, terms)
VALUES (%s, %s, %s, %s, %s, %s, array_to_tsvector(%s::text[]))
ON CONFLICT DO NOTHING RETURNING seq
"""  # noqa: S608 (the columns are ours)
_WAIT = "INSERT INTO memory_waiting SELECT made_by, %s, %s FROM memory_makers"
# Equal ranks: the newest first.
_RECALL = f"""
SELECT {COLUMNS} FROM memories
WHERE user_id = %(user)s AND terms @@ %(terms)s::tsquery
  AND (%(session)s::text IS NULL OR session_id IS DISTINCT FROM %(session)s)
  AND (%(relation)s::text IS NULL OR relation = %(relation)s)
  AND (%(maker)s::text IS NULL OR seq IN (
    SELECT seq FROM memory_waiting WHERE made_by = %(maker)s AND user_id = %(user)s
  ))
ORDER BY ts_rank(terms, %(terms)s::tsquery) DESC, seq DESC LIMIT %(limit)s
"""  # noqa: S608 (as above)
_FORGET = {
    "user": "DELETE FROM memories WHERE user_id = %s",
    "chat": "DELETE FROM memories WHERE session_id = %s",
}
# A term is at most this long in the index, and a text has at most so many of them there.
_LONGEST_TERM = 100
_MOST_TERMS = 10_000


class PostgresMemory(LongTermMemory):
    """Entries in PostgreSQL; made by `PostgresMemory.open(dsn)`."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        dsn: str,
        embedder: Embedder | None = None,
        *,
        least: float = 0.0,
        connections: int = 8,
        limit: float = 5.0,
    ) -> AsyncIterator[PostgresMemory]:
        """Connect and bring the tables up to date; `limit` in seconds per wait and per statement.

        With an embedder entries are found by its vectors, if they are more like than `least`; by
        full text where the server has no pgvector. Raises `EffectFailed` with `memory_unavailable`
        where no server answers, `StoreNotOpened` where the tables are newer than the code.
        """
        async with PostgresPool.open(
            dsn, MEMORY_CODES, name="memory", connections=connections, limit=limit
        ) as pool:
            await pool.migrate("memory", STEPS)
            if embedder is not None and not await make_vector_tables(pool):
                _LOG.warning("memory: the server has no pgvector 0.7: recalled by full text")
                embedder = None
            vectors = PostgresVectors(maker(embedder) if embedder else "", least)
            if embedder is not None:
                await vectors.register(pool)
            memory = cls(PostgresShelf(pool, vectors), embedder)
            async with memory.running():
                yield memory


class PostgresShelf:
    """Implements `effects.memory.shelf.Shelf`."""

    def __init__(self, pool: PostgresPool, vectors: PostgresVectors) -> None:
        self._pool = pool
        self._vectors = vectors

    @property
    def fault(self) -> str | None:
        """Why nobody waits for the server now; None where it answers."""
        return self._pool.fault

    async def by_text(self, query: Recall, wanted: Sequence[str]) -> tuple[MemoryEntry, ...]:
        """Find what shares terms with the query, best first."""
        async with self._pool.connection() as connection:
            return await _by_text(connection, query, wanted, None)

    async def by_vector(self, query: Recall, wanted: Sequence[str], vector: Vector) -> Found:
        """Find what is near the vector, and by full text what has none of this maker's."""
        async with self._pool.connection() as connection:
            nearest = await self._vectors.nearest(connection, query, vector)
        if nearest.known and not nearest.waits:
            return Found(tuple(entry_of(row) for row in nearest.rows), "vectors", waiting=False)
        return await self._by_both(query, wanted, vector)

    async def _by_both(self, query: Recall, wanted: Sequence[str], vector: Vector) -> Found:
        """Search twice in one state: what gets its vector meanwhile is in neither otherwise."""
        async with self._pool.reading() as connection:
            nearest = await self._vectors.nearest(connection, query, vector)
            waiting_for = self._vectors.maker if nearest.known else None
            others = await _by_text(connection, query, wanted, waiting_for)
        if not nearest.known:
            return Found(others, "text", waiting=False)
        chosen = tuple(entry_of(row) for row in nearest.rows)
        return Found(merged(chosen, others, query.limit), "vectors_and_text", waiting=True)

    async def add(self, entries: Sequence[MemoryEntry]) -> list[Stored]:
        """Keep all entries or none; gives those that are new."""
        stored = []
        async with self._pool.transaction() as connection:
            for entry in entries:
                values = (*msgspec.structs.astuple(entry), _terms(terms.of_text(entry.text)))
                row = await (await connection.execute(_WRITE, values)).fetchone()
                if row is not None:
                    await connection.execute(_WAIT, (entry.user_id, row[0]))
                    stored.append(Stored(row[0], entry.user_id, entry.text))
        return stored

    async def keep(self, stored: Sequence[Stored], vectors: Vectors) -> None:
        """Keep the vectors of entries that are still there."""
        async with self._pool.transaction() as connection:
            await self._vectors.keep(connection, stored, vectors)

    async def waiting(self, after: int, limit: int) -> list[Stored]:
        """Give entries that wait for a vector, by seq."""
        async with self._pool.connection() as connection:
            return await self._vectors.waiting(connection, after, limit)

    async def forget(self, whose: Whose) -> int:
        """Remove entries with their terms and vectors; the space is free after a vacuum."""
        query = _FORGET.get(whose.kind)
        if query is None:
            return 0
        async with self._pool.connection() as connection:
            return (await connection.execute(query, (whose.value,))).rowcount

    async def aclose(self) -> None:
        """Close the connections; idempotent."""
        await self._pool.aclose()


async def _by_text(
    connection: Connection, query: Recall, wanted: Sequence[str], made_by: str | None
) -> tuple[MemoryEntry, ...]:
    """Search all entries or, with a maker, those that wait for its vectors."""
    if not wanted:
        return ()
    values = {
        "user": query.user_id,
        # Terms hold letters and digits alone, and stand in quotes: no query can be syntax.
        "terms": " | ".join(f"'{term}'" for term in _terms(wanted)),
        "session": query.except_session,
        "relation": query.relation,
        "maker": made_by,
        "limit": query.limit,
    }
    rows = await (await connection.execute(_RECALL, values)).fetchall()
    return tuple(entry_of(row) for row in rows)


def _terms(found: Sequence[str]) -> list[str]:
    return [term[:_LONGEST_TERM] for term in found[:_MOST_TERMS]]
