"""Vectors beside the entries of an SQLite file, by who made them; searched in this process.

Entries wait for the vectors of every maker that is registered. A vector is never changed: what is
new has a larger number, and whatever is forgotten ends a generation.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from effects.embeddings import maker
from effects.memory.makers import ENTRIES, VECTORS_BY_MAKER, Made
from effects.memory.matrices import Matrices
from effects.memory.shelf import Stored
from effects.sqlite import transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from contract.stores import Recall
    from effects.embeddings import Embedder, Vector, Vectors
    from effects.memory.matrices import Matrix

_LOG: Final = logging.getLogger(__name__)
VECTOR_TABLES = (
    "CREATE TABLE memory_makers (made_by TEXT PRIMARY KEY) WITHOUT ROWID",
    # Session and relation are the entry's: what is ruled out is so before it is read.
    """CREATE TABLE memory_vectors (
        number INTEGER PRIMARY KEY AUTOINCREMENT, seq INTEGER NOT NULL, user_id TEXT NOT NULL,
        session_id TEXT, relation TEXT, made_by TEXT NOT NULL, vector BLOB NOT NULL,
        UNIQUE (seq, made_by)
    )""",
    "CREATE INDEX vectors_of_a_user ON memory_vectors (made_by, user_id, number)",
    """CREATE TABLE memory_waiting (
        made_by TEXT NOT NULL, user_id TEXT NOT NULL, seq INTEGER NOT NULL,
        PRIMARY KEY (made_by, user_id, seq)
    ) WITHOUT ROWID""",
    "CREATE INDEX waiting_in_order ON memory_waiting (seq, made_by)",
    "CREATE TABLE memory_generations (generation INTEGER NOT NULL)",
    "INSERT INTO memory_generations VALUES (0)",
)
_WAIT = "INSERT INTO memory_waiting SELECT made_by, ?, ? FROM memory_makers"
_ALL_WAIT = """
INSERT INTO memory_waiting SELECT ?1, user_id, seq FROM memories
WHERE seq NOT IN (SELECT seq FROM memory_vectors WHERE made_by = ?1)
"""
_NEWER_THAN = "FROM memory_vectors WHERE made_by = ? AND user_id = ? AND number > ?"
_COUNT = f"SELECT count(*) {_NEWER_THAN}"
_NEWER = f"SELECT number, seq, session_id, relation, vector {_NEWER_THAN} ORDER BY number"
_AT_ONCE = 256
"""Rows that are read together: few, for the memory of these serves the next ones, too."""
# The entry may have been forgotten since its text was read, and its seq be another's.
_KEEP = """
INSERT INTO memory_vectors (seq, user_id, session_id, relation, made_by, vector)
SELECT seq, user_id, session_id, relation, ?4, ?5 FROM memories
WHERE seq = ?1 AND user_id = ?2 AND text = ?3
ON CONFLICT DO NOTHING
"""
_SETTLED = """
DELETE FROM memory_waiting WHERE made_by = ?1 AND seq = ?2
  AND EXISTS (SELECT 1 FROM memory_vectors WHERE made_by = ?1 AND seq = ?2)
"""
_WAITING = """
SELECT memories.seq, memories.user_id, text FROM memory_waiting JOIN memories USING (seq)
WHERE made_by = ? AND memory_waiting.seq > ? ORDER BY memory_waiting.seq LIMIT ?
"""


class SqliteVectors:
    """The vectors of one maker; all of it runs in the store's thread.

    Without an embedder nothing is registered, and nothing is near anything.
    """

    def __init__(self, embedder: Embedder | None, least: float = 0.0) -> None:
        self.maker = maker(embedder) if embedder else ""
        self._least = least
        self._matrices = Matrices(embedder.dimensions if embedder else 0)

    def register(self, connection: sqlite3.Connection) -> None:
        """Let entries wait for this maker's vectors; remove those of others once all have one."""
        with transaction(connection):
            added = connection.execute(
                "INSERT INTO memory_makers VALUES (?) ON CONFLICT DO NOTHING", (self.maker,)
            )
            if added.rowcount:
                connection.execute(_ALL_WAIT, (self.maker,))
                vectors = dict(connection.execute(VECTORS_BY_MAKER).fetchall())
                made = Made(connection.execute(ENTRIES).fetchone()[0], vectors)
                if lacking := made.lacking(self.maker):
                    _LOG.warning("memory: %s", lacking)
            if not _any(connection, "memory_waiting WHERE made_by = ?", self.maker):
                for table in ("memory_makers", "memory_vectors", "memory_waiting"):
                    connection.execute(f"DELETE FROM {table} WHERE made_by != ?", (self.maker,))  # noqa: S608 (ours)

    def nearest(
        self, connection: sqlite3.Connection, query: Recall, vector: Vector
    ) -> list[int] | None:
        """Give the entries nearest to a vector; None where nobody knows whether all have one."""
        if not _any(connection, "memory_makers WHERE made_by = ?", self.maker):
            return None  # another model's process has removed them
        (generation,) = connection.execute("SELECT * FROM memory_generations").fetchone()
        matrix = self._matrices.of(query.user_id, generation)
        self._read(connection, query.user_id, matrix)
        nearest = matrix.best(vector, query, self._least)
        self._matrices.trim()
        return nearest

    def _read(self, connection: sqlite3.Connection, user_id: str, matrix: Matrix) -> None:
        """Bring a matrix up to date."""
        newer_than = (self.maker, user_id, matrix.last)
        (count,) = connection.execute(_COUNT, newer_than).fetchone()
        if not count:
            return
        matrix.reserve(count)
        newer = connection.execute(_NEWER, newer_than)
        while rows := newer.fetchmany(_AT_ONCE):
            matrix.extend(rows)

    def wait_of(self, connection: sqlite3.Connection, user_id: str) -> bool:
        """Whether any of a user's entries wait."""
        condition = "memory_waiting WHERE made_by = ? AND user_id = ?"
        return _any(connection, condition, self.maker, user_id)

    def waiting(self, connection: sqlite3.Connection, after: int, limit: int) -> list[Stored]:
        """Give entries that wait, by seq."""
        return [Stored(*row) for row in connection.execute(_WAITING, (self.maker, after, limit))]

    def keep(
        self, connection: sqlite3.Connection, stored: Sequence[Stored], vectors: Vectors
    ) -> None:
        """Keep the vectors of entries that are still there."""
        with transaction(connection):
            for one, vector in zip(stored, vectors, strict=True):
                connection.execute(_KEEP, (*one, self.maker, vector.tobytes()))
                connection.execute(_SETTLED, (self.maker, one.seq))


def wait(connection: sqlite3.Connection, user_id: str, seq: int) -> None:
    """Let a new entry wait for the vectors of every maker."""
    connection.execute(_WAIT, (user_id, seq))


def unkeep(connection: sqlite3.Connection, seqs: Sequence[int]) -> None:
    """Remove everything that was made of entries, and what processes hold of it."""
    for seq in seqs:
        connection.execute("DELETE FROM memory_vectors WHERE seq = ?", (seq,))
        connection.execute("DELETE FROM memory_waiting WHERE seq = ?", (seq,))
    connection.execute("UPDATE memory_generations SET generation = generation + 1")


def _any(connection: sqlite3.Connection, condition: str, *values: str) -> bool:
    (found,) = connection.execute(f"SELECT EXISTS (SELECT 1 FROM {condition})", values).fetchone()  # noqa: S608 (ours)
    return bool(found)
