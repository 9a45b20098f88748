"""The long-term memory in PostgreSQL: full text by tsvector, vectors by pgvector if it is there.

Texts are cut into the terms of `text_terms`, as in SQLite. Vectors, of half precision,
are compared one by one, a user's alone: exact, and no filter can starve the answer.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from sqlalchemy import ColumnElement, delete, func, text

from contract.errors import EffectFailed
from contract.stores import MemoryEntry, NearEntry, Recall, Revision
from effects.memory.embeddings import Embedder, Vector
from effects.memory.store import (
    MAKERS,
    MEMORIES,
    PROGRESS,
    TYPED,
    WAITING,
    EntryStore,
    RecallResult,
    VectorCounts,
    count_vectors,
    entry_of,
    row_of,
    text_terms,
)
from effects.stores.postgres import LimitedConnection, PostgresDatabase, attempt, drive, execute
from effects.stores.tables import (
    CHECK_SECONDS,
    MEMORY_CODES,
    BoundStatement,
    Schema,
    Statement,
    Transaction,
    creation,
)

log = logging.getLogger(__name__)

MEMORY: Final = Schema(
    "memory",
    (MEMORIES, MAKERS, WAITING, PROGRESS),
    initial=(
        "ALTER TABLE memories ADD COLUMN terms tsvector NOT NULL",
        # A text may be longer than what an index can hold.
        "CREATE UNIQUE INDEX memories_of_a_user ON memories (user_id, md5(text))",
        "CREATE INDEX memory_terms ON memories USING gin (terms)",
    ),
    steps=({"postgresql": (*TYPED, *creation(PROGRESS, "postgresql"))},),
)
_VECTORS: Final = Schema(
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

_INSERT: Final = Statement(
    text("""
INSERT INTO memories (
    memory_id, user_id, text, session_id, relation, confidence, kind, at, changed_in, terms
) VALUES (:memory_id, :user_id, :text, :session_id, :relation, :confidence, :kind, :at, :changed_in,
        array_to_tsvector(CAST(:terms AS text[])))
ON CONFLICT DO NOTHING RETURNING seq
""")
)
# Equal ranks: the newest first.
_SEARCH: Final = Statement(
    text("""
SELECT memory_id, user_id, text, session_id, relation, confidence, kind, at, changed_in
FROM memories
WHERE user_id = :user_id AND terms @@ CAST(:terms AS tsquery)
  AND (CAST(:session AS text) IS NULL OR session_id IS DISTINCT FROM :session
       OR changed_in IS NOT NULL)
  AND (CAST(:relation AS text) IS NULL OR relation = :relation)
  AND (CAST(:maker AS text) IS NULL OR seq IN (
    SELECT seq FROM memory_waiting WHERE made_by = :maker AND user_id = :user_id
  ))
ORDER BY ts_rank(terms, CAST(:terms AS tsquery)) DESC, seq DESC LIMIT :limit
""")
)
# One statement reads one state. Vectors have the length 1: the inner product, which pgvector
# negates, is how like they are. Where nothing is near, there is one row without an entry.
_NEAREST: Final = Statement(
    text("""
WITH nearest AS MATERIALIZED (
    SELECT seq, vector <#> CAST(:vector AS halfvec) AS apart FROM memory_vectors
    WHERE made_by = :maker AND user_id = :user_id
      AND vector <#> CAST(:vector AS halfvec) < :most
      AND (CAST(:session AS text) IS NULL OR session_id IS DISTINCT FROM :session)
      AND (CAST(:relation AS text) IS NULL OR relation = :relation)
    ORDER BY vector <#> CAST(:vector AS halfvec), seq DESC LIMIT :limit
)
SELECT known AND NOT waits, -apart,
    memory_id, user_id, text, session_id, relation, confidence, kind, at, changed_in
FROM (SELECT
    EXISTS (SELECT 1 FROM memory_makers WHERE made_by = :maker) AS known,
    EXISTS (SELECT 1 FROM memory_waiting WHERE made_by = :maker AND user_id = :user_id) AS waits
) AS state LEFT JOIN (nearest JOIN memories USING (seq)) ON true
ORDER BY apart, seq DESC
""")
)
_WRITING: Final = 7_403
_LOCK_USER: Final = Statement(
    text(f"SELECT pg_advisory_xact_lock({_WRITING}, hashtext(CAST(:user_id AS text)))")
)
_LOCK_MAKERS: Final = "LOCK TABLE memory_makers IN ACCESS EXCLUSIVE MODE"
_USABLE: Final = Statement(text("SELECT to_regtype('halfvec') IS NOT NULL"))
_EXTEND: Final = "CREATE EXTENSION IF NOT EXISTS vector"
_OFFERED: Final = Statement(
    text("""
SELECT to_regtype('halfvec') IS NOT NULL, installed_version, rolsuper OR (
    SELECT bool_or(trusted) FROM pg_available_extension_versions WHERE name = 'vector'
) AND has_database_privilege(current_database(), 'CREATE'), name IS NOT NULL
FROM pg_roles LEFT JOIN pg_available_extensions ON name = 'vector'
WHERE rolname = current_user
""")
)
# A term is at most this long in the index, and a text has at most so many of them there.
_LONGEST_TERM = 100
_MOST_TERMS = 10_000


class PostgresEntries(EntryStore):
    """Entries in PostgreSQL; made by `PostgresEntries.open(dsn)`."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls, dsn: str, embedder: Embedder | None, least: float, limit: float | None = None
    ) -> AsyncIterator[PostgresEntries]:
        """Connect, as `PostgresDatabase` does, and register the embedder if there is pgvector."""
        async with PostgresDatabase.open(dsn, MEMORY, MEMORY_CODES, limit=limit) as database:
            if embedder is not None and not await _make_vector_tables(database):
                log.warning("memory: the server has no pgvector 0.7: recalled by full text")
                embedder = None
            store = cls(database, embedder, least)
            if embedder is not None:
                async with database.migrating() as connection:
                    # A process that has just stored an entry saw either this maker or this lock.
                    await connection.execute(_LOCK_MAKERS)
                    await drive(connection, store._register())
            yield store

    async def by_vector(self, query: Recall, terms: Sequence[str], vector: Vector) -> RecallResult:
        """Find by vectors in one statement, and only if some have none in one state."""
        rows, _ = await self._database.execute(self._near(query, vector))
        if rows[0][0]:
            return RecallResult(_entries(rows), "vectors", waiting=False)
        return await super().by_vector(query, terms, vector)

    def _text_search(
        self, query: Recall, terms: Sequence[str], maker: str | None
    ) -> BoundStatement:
        return _SEARCH(
            user_id=query.user_id,
            # Terms hold letters and digits alone, and stand in quotes: no query can be syntax.
            terms=" | ".join(f"'{term}'" for term in _indexed(terms)),
            session=query.except_session,
            relation=query.relation,
            maker=maker,
            limit=query.limit,
        )

    def _nearest(self, query: Recall, vector: Vector) -> Transaction[Sequence[NearEntry]]:
        rows, _ = yield self._near(query, vector)
        return _entries(rows)

    def _near(self, query: Recall, vector: Vector) -> BoundStatement:
        return _NEAREST(
            maker=self._maker,
            user_id=query.user_id,
            vector=self._encode(vector),
            most=-self._least,
            session=query.except_session,
            relation=query.relation,
            limit=query.limit,
        )

    def _insert(self, entry: MemoryEntry) -> Transaction[int | None]:
        words = _indexed(text_terms(entry.text))
        rows, _ = yield _INSERT(**row_of(entry), terms=words)
        return rows[0][0] if rows else None

    def _remove(self, condition: ColumnElement[bool], **values: object) -> Transaction[int]:
        _, removed = yield Statement(delete(MEMORIES).where(condition))(**values)
        return removed

    def _position(self, text: ColumnElement[Any], part: ColumnElement[Any]) -> ColumnElement[int]:
        return func.strpos(text, part)

    def _revise(self, revision: Revision) -> Transaction[bool]:
        # Sessions of a user that drop or add the same memories would wait for each other for ever.
        yield _LOCK_USER(user_id=revision.reading.user_id)
        return (yield from super()._revise(revision))

    def _encode(self, vector: Vector) -> str:
        return "[" + ",".join(f"{number:.6g}" for number in vector.tolist()) + "]"


async def why_no_vectors(dsn: str) -> str:
    """Explain why a store here would have no vectors, "" where it would; nothing is made.

    Raises `EffectFailed`.
    """
    async with PostgresDatabase.open(dsn, None, MEMORY_CODES, limit=CHECK_SECONDS) as database:
        rows, _ = await database.execute(_OFFERED())
    usable, installed, creatable, offered = rows[0] if rows else (False, None, False, False)
    if usable:
        return ""
    if not offered:
        return "the server has no pgvector"
    if installed:
        found = f"pgvector {installed} is installed, but not found or too old"
        return f"{found}: 0.7 or newer is due, in a schema that is looked in"
    return "" if creatable else "the extension vector is not created, and the role may not do it"


async def vectors_in_database(dsn: str) -> VectorCounts | None:
    """Count what a database holds; None where there are no such tables yet, or no answer."""
    try:
        async with PostgresDatabase.open(dsn, None, MEMORY_CODES, limit=CHECK_SECONDS) as database:
            return await database.snapshot(count_vectors())
    except EffectFailed:
        return None


async def _make_vector_tables(database: PostgresDatabase) -> bool:
    """Make the tables of vectors; False where the server has no pgvector 0.7, or may not have."""
    async with database.migrating() as connection:
        usable = await _is_usable(connection) or (
            await attempt(connection, _EXTEND) and await _is_usable(connection)
        )
    if usable:
        await database.migrate(_VECTORS)
    return usable


async def _is_usable(connection: LimitedConnection) -> bool:
    return bool((await execute(connection, _USABLE())).rows[0][0])


def _entries(rows: Sequence[tuple[Any, ...]]) -> tuple[NearEntry, ...]:
    return tuple(NearEntry(entry_of(row[2:]), row[1]) for row in rows if row[1] is not None)


def _indexed(found: Sequence[str]) -> list[str]:
    return [term[:_LONGEST_TERM] for term in found[:_MOST_TERMS]]
