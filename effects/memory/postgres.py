"""Vectors beside the entries in PostgreSQL, by who made them: pgvector's, of half precision."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple

import msgspec

from contract.errors import EffectFailed
from contract.stores import MemoryEntry
from effects.memory import terms
from effects.memory.embeddings import maker
from effects.memory.search import LongTermMemory
from effects.memory.store import (
    COLUMNS,
    ENTRIES,
    VECTORS_BY_MAKER,
    RecallResult,
    StoredEntry,
    VectorCounts,
    entry_of,
    merged,
)
from effects.stores.postgres import PostgresDatabase, attempt
from effects.stores.tables import Schema
from effects.stores.values import MEMORY_CODES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from contract.stores import Recall
    from effects.memory.embeddings import Embedder, Vector, Vectors
    from effects.stores.postgres import LimitedConnection
    from effects.stores.values import DataSubject


log = logging.getLogger(__name__)
_VECTORS = Schema(
    "memory_vectors",
    tables=(),
    initial=(
        # Session and relation are the entry's: what is ruled out is so before it is compared.
        """CREATE TABLE memory_vectors (
            seq bigint NOT NULL REFERENCES memories ON DELETE CASCADE, user_id text NOT NULL,
            session_id text, relation text, made_by text NOT NULL, vector halfvec NOT NULL,
            PRIMARY KEY (seq, made_by)
        )""",
        # In the row as long as a page can hold it: what is elsewhere is read at twice the cost.
        "ALTER TABLE memory_vectors ALTER COLUMN vector SET STORAGE MAIN",
        "CREATE INDEX vectors_of_a_user ON memory_vectors (made_by, user_id)",
    ),
)
_USABLE = "SELECT to_regtype('halfvec') IS NOT NULL"
_OFFERED = """
SELECT to_regtype('halfvec') IS NOT NULL, installed_version, rolsuper OR (
    SELECT bool_or(trusted) FROM pg_available_extension_versions WHERE name = 'vector'
) AND has_database_privilege(current_database(), 'CREATE')
FROM pg_roles LEFT JOIN pg_available_extensions ON name = 'vector'
WHERE rolname = current_user
"""
_THERE = "SELECT EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'vector')"
_EXTEND = "CREATE EXTENSION IF NOT EXISTS vector"
_LET_IN = "INSERT INTO memory_makers VALUES (%s) ON CONFLICT DO NOTHING"
_ALL_WAIT = """
INSERT INTO memory_waiting SELECT %(maker)s, user_id, seq FROM memories WHERE NOT EXISTS (
    SELECT 1 FROM memory_vectors AS made WHERE made.seq = memories.seq AND made_by = %(maker)s
)
"""
_REMOVE_OTHERS = (
    "DELETE FROM memory_makers WHERE made_by != %s",
    "DELETE FROM memory_vectors WHERE made_by != %s",
    "DELETE FROM memory_waiting WHERE made_by != %s",
)
# One statement reads one state. Vectors have the length 1: the inner product, which pgvector
# negates, is how like they are.
_NEAREST = """
WITH nearest AS MATERIALIZED (
    SELECT seq, vector <#> %(vector)s::halfvec AS apart FROM memory_vectors
    WHERE made_by = %(maker)s AND user_id = %(user)s AND vector <#> %(vector)s::halfvec < %(most)s
      AND (%(session)s::text IS NULL OR session_id IS DISTINCT FROM %(session)s)
      AND (%(relation)s::text IS NULL OR relation = %(relation)s)
    ORDER BY vector <#> %(vector)s::halfvec, seq DESC LIMIT %(limit)s
)
SELECT known, waits, memory_id, user_id, text, session_id, relation, confidence
FROM (SELECT
    EXISTS (SELECT 1 FROM memory_makers WHERE made_by = %(maker)s) AS known,
    EXISTS (SELECT 1 FROM memory_waiting WHERE made_by = %(maker)s AND user_id = %(user)s) AS waits
) AS state LEFT JOIN (nearest JOIN memories USING (seq)) ON true
ORDER BY apart, seq DESC
"""
_WAIT = "SELECT EXISTS (SELECT 1 FROM memory_waiting WHERE made_by = %s)"
_WAITING = """
SELECT seq, memories.user_id, text FROM memory_waiting JOIN memories USING (seq)
WHERE made_by = %s AND seq > %s ORDER BY seq LIMIT %s
"""
# Locked, so that it cannot be forgotten meanwhile.
_KEEP = """
INSERT INTO memory_vectors (seq, user_id, session_id, relation, made_by, vector)
SELECT seq, user_id, session_id, relation, %s, %s::halfvec FROM memories
WHERE seq = %s AND user_id = %s AND text = %s FOR KEY SHARE
ON CONFLICT DO NOTHING
"""
_SETTLED = "DELETE FROM memory_waiting WHERE made_by = %s AND seq = %s"


class Nearest(NamedTuple):
    """Rows of entries; not `known` where another model's process has removed this maker's vectors.

    `waits` says that some of the user's entries have no vector yet.
    """

    known: bool
    waits: bool
    rows: list[list[Any]]


async def make_vector_tables(pool: PostgresDatabase) -> bool:
    """Make the tables of vectors; False where the server has no pgvector 0.7, or may not have."""
    async with pool.migrating() as connection:
        usable = await _true(connection, _USABLE) or (
            await attempt(connection, _EXTEND) and await _true(connection, _USABLE)
        )
    if usable:
        await pool.migrate(_VECTORS)
    return usable


async def why_no_vectors(dsn: str, limit: float = 2.0) -> str:
    """Say why a store here would have no vectors, "" where it would; nothing is made.

    Raises `EffectFailed`.
    """
    async with (
        PostgresDatabase.open(dsn, None, MEMORY_CODES, connections=1, limit=limit) as pool,
        pool.connection() as connection,
    ):
        there = await _true(connection, _THERE)
        row = await (await connection.execute(_OFFERED)).fetchone()
    usable, installed, creatable = row or (False, None, False)
    if usable:
        return ""
    if not there:
        return "the server has no pgvector"
    if installed:
        found = f"pgvector {installed} is installed, but not found or too old"
        return f"{found}: 0.7 or newer is due, in a schema that is looked in"
    return "" if creatable else "the extension vector is not created, and the role may not do it"


async def made_in_database(dsn: str, limit: float = 2.0) -> VectorCounts | None:
    """Count what a database holds; None where there are no such tables yet, or no answer."""
    try:
        async with (
            PostgresDatabase.open(dsn, None, MEMORY_CODES, connections=1, limit=limit) as pool,
            pool.snapshot() as connection,
        ):
            return await _made(connection)
    except EffectFailed:
        return None


async def _made(connection: LimitedConnection) -> VectorCounts:
    vectors = await (await connection.execute(VECTORS_BY_MAKER)).fetchall()
    entries = await (await connection.execute(ENTRIES)).fetchone()
    return VectorCounts(entries[0] if entries else 0, dict(vectors))


class PostgresVectors:
    """The vectors of one maker."""

    def __init__(self, made_by: str, least: float) -> None:
        self.maker = made_by
        self._least = least

    async def register(self, pool: PostgresDatabase) -> None:
        """Let entries wait for this maker's vectors; remove those of others once all have one."""
        async with pool.migrating() as connection:
            # Whoever has just written an entry has seen either this maker or this lock.
            await connection.execute("LOCK TABLE memory_makers IN ACCESS EXCLUSIVE MODE")
            if (await connection.execute(_LET_IN, (self.maker,))).rowcount:
                await connection.execute(_ALL_WAIT, {"maker": self.maker})
                if lacking := (await _made(connection)).lacking(self.maker):
                    log.warning("memory: %s", lacking)
            if not await _true(connection, _WAIT, self.maker):
                for statement in _REMOVE_OTHERS:
                    await connection.execute(statement, (self.maker,))

    async def nearest(
        self, connection: LimitedConnection, query: Recall, vector: Vector
    ) -> Nearest:
        """Give the entries nearest to a vector, best first, and whether all have one."""
        values = {
            "maker": self.maker,
            "user": query.user_id,
            "vector": _literal(vector),
            "most": -self._least,
            "session": query.except_session,
            "relation": query.relation,
            "limit": query.limit,
        }
        rows = await (await connection.execute(_NEAREST, values)).fetchall()
        known, waits, *_ = rows[0]
        # Nothing is near: one row without an entry.
        return Nearest(known, waits, [entry for _, _, *entry in rows if entry[0] is not None])

    async def waiting(
        self, connection: LimitedConnection, after: int, limit: int
    ) -> list[StoredEntry]:
        """Give entries that wait, by seq."""
        rows = await (await connection.execute(_WAITING, (self.maker, after, limit))).fetchall()
        return [StoredEntry(*row) for row in rows]

    async def keep(
        self, connection: LimitedConnection, stored: Sequence[StoredEntry], vectors: Vectors
    ) -> None:
        """Keep the vectors of entries that are still there."""
        made = zip(stored, vectors, strict=True)
        rows = [(self.maker, _literal(vector), *one) for one, vector in made]
        async with connection.cursor() as cursor:
            await cursor.executemany(_KEEP, rows)
            await cursor.executemany(_SETTLED, [(self.maker, one.seq) for one in stored])


async def _true(connection: LimitedConnection, query: LiteralString, *values: str) -> bool:
    row = await (await connection.execute(query, values)).fetchone()
    return bool(row and row[0])


def _literal(vector: Vector) -> str:
    return "[" + ",".join(f"{number:.6g}" for number in vector.tolist()) + "]"


MEMORY = Schema(
    "memory",
    tables=(),
    initial=(
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
_WAIT_FOR_VECTORS = "INSERT INTO memory_waiting SELECT made_by, %s, %s FROM memory_makers"
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
        async with PostgresDatabase.open(
            dsn, MEMORY, MEMORY_CODES, connections=connections, limit=limit
        ) as pool:
            if embedder is not None and not await make_vector_tables(pool):
                log.warning("memory: the server has no pgvector 0.7: recalled by full text")
                embedder = None
            vectors = PostgresVectors(maker(embedder) if embedder else "", least)
            if embedder is not None:
                await vectors.register(pool)
            memory = cls(PostgresShelf(pool, vectors), embedder)
            async with memory.running():
                yield memory


class PostgresShelf:
    """Implements `effects.memory.store.EntryStore`."""

    def __init__(self, pool: PostgresDatabase, vectors: PostgresVectors) -> None:
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

    async def by_vector(self, query: Recall, wanted: Sequence[str], vector: Vector) -> RecallResult:
        """Find what is near the vector, and by full text what has none of this maker's."""
        async with self._pool.connection() as connection:
            nearest = await self._vectors.nearest(connection, query, vector)
        if nearest.known and not nearest.waits:
            return RecallResult(
                tuple(entry_of(row) for row in nearest.rows), "vectors", waiting=False
            )
        return await self._by_both(query, wanted, vector)

    async def _by_both(self, query: Recall, wanted: Sequence[str], vector: Vector) -> RecallResult:
        """Search twice in one state: what gets its vector meanwhile is in neither otherwise."""
        async with self._pool.snapshot() as connection:
            nearest = await self._vectors.nearest(connection, query, vector)
            waiting_for = self._vectors.maker if nearest.known else None
            others = await _by_text(connection, query, wanted, waiting_for)
        if not nearest.known:
            return RecallResult(others, "text", waiting=False)
        chosen = tuple(entry_of(row) for row in nearest.rows)
        return RecallResult(merged(chosen, others, query.limit), "vectors_and_text", waiting=True)

    async def add(self, entries: Sequence[MemoryEntry]) -> list[StoredEntry]:
        """Keep all entries or none; gives those that are new."""
        stored = []
        async with self._pool.transaction() as connection:
            for entry in entries:
                values = (*msgspec.structs.astuple(entry), _terms(terms.of_text(entry.text)))
                row = await (await connection.execute(_WRITE, values)).fetchone()
                if row is not None:
                    await connection.execute(_WAIT_FOR_VECTORS, (entry.user_id, row[0]))
                    stored.append(StoredEntry(row[0], entry.user_id, entry.text))
        return stored

    async def keep(self, stored: Sequence[StoredEntry], vectors: Vectors) -> None:
        """Keep the vectors of entries that are still there."""
        async with self._pool.transaction() as connection:
            await self._vectors.keep(connection, stored, vectors)

    async def waiting(self, after: int, limit: int) -> list[StoredEntry]:
        """Give entries that wait for a vector, by seq."""
        async with self._pool.connection() as connection:
            return await self._vectors.waiting(connection, after, limit)

    async def erase(self, subject: DataSubject) -> int:
        """Remove entries with their terms and vectors; the space is free after a vacuum."""
        query = _FORGET.get(subject.kind)
        if query is None:
            return 0
        async with self._pool.connection() as connection:
            return (await connection.execute(query, (subject.value,))).rowcount

    async def aclose(self) -> None:
        """Close the connections; idempotent."""
        await self._pool.aclose()


async def _by_text(
    connection: LimitedConnection, query: Recall, wanted: Sequence[str], made_by: str | None
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
