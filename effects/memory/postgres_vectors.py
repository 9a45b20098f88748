"""Vectors beside the entries in PostgreSQL, by who made them: pgvector's, of half precision."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, LiteralString, NamedTuple

from contract.errors import EffectFailed
from effects.codes import MEMORY_CODES
from effects.memory.makers import ENTRIES, VECTORS_BY_MAKER, Made
from effects.memory.shelf import Stored
from effects.postgres import PostgresPool, attempted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contract.stores import Recall
    from effects.embeddings import Vector, Vectors
    from effects.postgres import Connection, Steps

_LOG: Final = logging.getLogger(__name__)
_STEPS: Steps = (
    (
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


async def make_vector_tables(pool: PostgresPool) -> bool:
    """Make the tables of vectors; False where the server has no pgvector 0.7, or may not have."""
    async with pool.migrating() as connection:
        usable = await _true(connection, _USABLE) or (
            await attempted(connection, _EXTEND) and await _true(connection, _USABLE)
        )
    if usable:
        await pool.migrate("memory_vectors", _STEPS)
    return usable


async def why_no_vectors(dsn: str, limit: float = 2.0) -> str:
    """Say why a store here would have no vectors, "" where it would; nothing is made.

    Raises `EffectFailed`.
    """
    async with (
        PostgresPool.open(dsn, MEMORY_CODES, connections=1, limit=limit) as pool,
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


async def made_in_database(dsn: str, limit: float = 2.0) -> Made | None:
    """Count what a database holds; None where there are no such tables yet, or no answer."""
    try:
        async with (
            PostgresPool.open(dsn, MEMORY_CODES, connections=1, limit=limit) as pool,
            pool.reading() as connection,
        ):
            return await _made(connection)
    except EffectFailed:
        return None


async def _made(connection: Connection) -> Made:
    vectors = await (await connection.execute(VECTORS_BY_MAKER)).fetchall()
    entries = await (await connection.execute(ENTRIES)).fetchone()
    return Made(entries[0] if entries else 0, dict(vectors))


class PostgresVectors:
    """The vectors of one maker."""

    def __init__(self, made_by: str, least: float) -> None:
        self.maker = made_by
        self._least = least

    async def register(self, pool: PostgresPool) -> None:
        """Let entries wait for this maker's vectors; remove those of others once all have one."""
        async with pool.migrating() as connection:
            # Whoever has just written an entry has seen either this maker or this lock.
            await connection.execute("LOCK TABLE memory_makers IN ACCESS EXCLUSIVE MODE")
            if (await connection.execute(_LET_IN, (self.maker,))).rowcount:
                await connection.execute(_ALL_WAIT, {"maker": self.maker})
                if lacking := (await _made(connection)).lacking(self.maker):
                    _LOG.warning("memory: %s", lacking)
            if not await _true(connection, _WAIT, self.maker):
                for statement in _REMOVE_OTHERS:
                    await connection.execute(statement, (self.maker,))

    async def nearest(self, connection: Connection, query: Recall, vector: Vector) -> Nearest:
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

    async def waiting(self, connection: Connection, after: int, limit: int) -> list[Stored]:
        """Give entries that wait, by seq."""
        rows = await (await connection.execute(_WAITING, (self.maker, after, limit))).fetchall()
        return [Stored(*row) for row in rows]

    async def keep(
        self, connection: Connection, stored: Sequence[Stored], vectors: Vectors
    ) -> None:
        """Keep the vectors of entries that are still there."""
        made = zip(stored, vectors, strict=True)
        rows = [(self.maker, _literal(vector), *one) for one, vector in made]
        async with connection.cursor() as cursor:
            await cursor.executemany(_KEEP, rows)
            await cursor.executemany(_SETTLED, [(self.maker, one.seq) for one in stored])


async def _true(connection: Connection, query: LiteralString, *values: str) -> bool:
    row = await (await connection.execute(query, values)).fetchone()
    return bool(row and row[0])


def _literal(vector: Vector) -> str:
    return "[" + ",".join(f"{number:.6g}" for number in vector.tolist()) + "]"
