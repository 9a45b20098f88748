"""Vectors beside the entries of an SQLite file, by who made them; searched in this process.

Entries wait for the vectors of every maker that is registered. A vector is never changed: what is
new has a larger number, and whatever is forgotten ends a generation.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

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
from effects.memory.vectors import Matrices
from effects.stores.sqlite import SqliteDatabase, snapshot, transaction, truncate_log
from effects.stores.tables import Schema
from effects.stores.values import MEMORY_CODES

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from contract.stores import Recall
    from effects.memory.embeddings import Embedder, Vector, Vectors
    from effects.memory.vectors import Matrix
    from effects.stores.values import DataSubject


log = logging.getLogger(__name__)
_OF_A_SESSION = "CREATE INDEX memories_of_a_session ON memories (session_id)"
_VECTOR_TABLES = (
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
                made = VectorCounts(connection.execute(ENTRIES).fetchone()[0], vectors)
                if lacking := made.lacking(self.maker):
                    log.warning("memory: %s", lacking)
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

    def waiting(self, connection: sqlite3.Connection, after: int, limit: int) -> list[StoredEntry]:
        """Give entries that wait, by seq."""
        return [
            StoredEntry(*row) for row in connection.execute(_WAITING, (self.maker, after, limit))
        ]

    def keep(
        self, connection: sqlite3.Connection, stored: Sequence[StoredEntry], vectors: Vectors
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


MEMORY = Schema(
    "memory",
    tables=(),
    initial=(
        """CREATE TABLE memories (
            seq INTEGER PRIMARY KEY, memory_id TEXT NOT NULL, user_id TEXT NOT NULL,
            text TEXT NOT NULL, session_id TEXT, relation TEXT, confidence REAL,
            UNIQUE (user_id, text)
        )""",
        # Terms only: the texts are above. The owner is a term too, so that a search touches the
        # entries of one user alone.
        """CREATE VIRTUAL TABLE memory_terms USING fts5 (
            owner, terms, content = '', tokenize = 'unicode61 remove_diacritics 0'
        )""",
        *_VECTOR_TABLES,
        _OF_A_SESSION,
    ),
    steps=({"sqlite": _VECTOR_TABLES}, {"sqlite": (_OF_A_SESSION,)}),
)
_WRITE = f"INSERT INTO memories ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"  # noqa: S608 (the columns are ours)
_INDEX = "INSERT INTO memory_terms (rowid, owner, terms) VALUES (?, ?, ?)"
_UNINDEX = "INSERT INTO memory_terms (memory_terms, rowid, owner, terms) VALUES ('delete', ?, ?, ?)"
_COLUMN_OF = {"user": "user_id", "chat": "session_id"}
# The owner's column weighs nothing in the rank; equal ranks: the newest first.
_RECALL = f"""
SELECT {COLUMNS} FROM memory_terms JOIN memories ON memories.seq = memory_terms.rowid
WHERE memory_terms MATCH ?1 AND user_id = ?2
  AND (?3 IS NULL OR session_id IS NOT ?3) AND (?4 IS NULL OR relation = ?4)
  AND (?6 IS NULL OR seq IN (
    SELECT seq FROM memory_waiting WHERE made_by = ?6 AND memory_waiting.user_id = ?2
  ))
ORDER BY bm25(memory_terms, 0.0, 1.0), seq DESC LIMIT ?5
"""  # noqa: S608 (as above)
_CHOSEN = f"""
SELECT seq, {COLUMNS} FROM memories
WHERE seq IN (SELECT value FROM json_each(?)) AND user_id = ?
"""  # noqa: S608 (as above)


class SqliteMemory(LongTermMemory):
    """Entries in an SQLite file; made by `SqliteMemory.open(path)`."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: str | Path, embedder: Embedder | None = None, *, least: float = 0.0
    ) -> AsyncIterator[SqliteMemory]:
        """Open the file, making it where there is none; raises `StoreNotOpened`.

        With an embedder entries are found by its vectors, if they are more like than `least`.
        """
        async with SqliteDatabase.open(path, MEMORY, MEMORY_CODES) as file:
            vectors = SqliteVectors(embedder, least)
            if embedder is not None:
                await file.run(vectors.register)
            memory = cls(SqliteShelf(file, vectors), embedder)
            async with memory.running():
                yield memory


class SqliteShelf:
    """Implements `effects.memory.store.EntryStore`."""

    fault = None

    def __init__(self, file: SqliteDatabase, vectors: SqliteVectors) -> None:
        self._file = file
        self._vectors = vectors

    async def by_text(self, query: Recall, wanted: Sequence[str]) -> tuple[MemoryEntry, ...]:
        """Find what shares terms with the query, best first."""
        return await self._file.run(_by_text, query, wanted, None)

    async def by_vector(self, query: Recall, wanted: Sequence[str], vector: Vector) -> RecallResult:
        """Find what is near the vector, and by full text what has none of this maker's."""
        return await self._file.run(_by_vector, self._vectors, query, wanted, vector)

    async def add(self, entries: Sequence[MemoryEntry]) -> list[StoredEntry]:
        """Keep all entries or none; gives those that are new."""
        return await self._file.run(_add, entries)

    async def keep(self, stored: Sequence[StoredEntry], vectors: Vectors) -> None:
        """Keep the vectors of entries that are still there."""
        await self._file.run(self._vectors.keep, stored, vectors)

    async def waiting(self, after: int, limit: int) -> list[StoredEntry]:
        """Give entries that wait for a vector, by seq."""
        return await self._file.run(self._vectors.waiting, after, limit)

    async def erase(self, subject: DataSubject) -> int:
        """Remove entries with their terms and vectors; returns how many."""
        return await self._file.run(_erase, subject)

    async def aclose(self) -> None:
        """Close the file; idempotent."""
        await self._file.aclose()


def _by_text(
    connection: sqlite3.Connection, query: Recall, wanted: Sequence[str], maker: str | None
) -> tuple[MemoryEntry, ...]:
    """Search all entries or, with a maker, those that wait for its vectors."""
    if not wanted:
        return ()
    # Terms hold letters and digits alone, and stand in quotes: no query can be syntax.
    any_term = " OR ".join(f'"{term}"' for term in wanted)
    match = f"owner : {_owner(query.user_id)} AND terms : ({any_term})"
    limits = (query.except_session, query.relation, query.limit, maker)
    rows = connection.execute(_RECALL, (match, query.user_id, *limits)).fetchall()
    return tuple(entry_of(row) for row in rows)


def _by_vector(
    connection: sqlite3.Connection,
    vectors: SqliteVectors,
    query: Recall,
    wanted: Sequence[str],
    vector: Vector,
) -> RecallResult:
    with snapshot(connection):
        nearest = vectors.nearest(connection, query, vector)
        if nearest is None:
            return RecallResult(_by_text(connection, query, wanted, None), "text", waiting=False)
        chosen = _chosen(connection, query.user_id, nearest)
        if not vectors.wait_of(connection, query.user_id):
            return RecallResult(chosen, "vectors", waiting=False)
        others = _by_text(connection, query, wanted, vectors.maker)
        return RecallResult(merged(chosen, others, query.limit), "vectors_and_text", waiting=True)


def _chosen(
    connection: sqlite3.Connection, user_id: str, seqs: Sequence[int]
) -> tuple[MemoryEntry, ...]:
    rows = connection.execute(_CHOSEN, (msgspec.json.encode(seqs).decode(), user_id))
    entries = {seq: entry_of(row) for seq, *row in rows}
    return tuple(entries[seq] for seq in seqs if seq in entries)


def _add(connection: sqlite3.Connection, entries: Sequence[MemoryEntry]) -> list[StoredEntry]:
    stored = []
    with transaction(connection):
        for entry in entries:
            done = connection.execute(_WRITE, msgspec.structs.astuple(entry))
            if done.rowcount and (seq := done.lastrowid) is not None:
                words = " ".join(terms.of_text(entry.text))
                connection.execute(_INDEX, (seq, _owner(entry.user_id), words))
                wait(connection, entry.user_id, seq)
                stored.append(StoredEntry(seq, entry.user_id, entry.text))
    return stored


def _erase(connection: sqlite3.Connection, subject: DataSubject) -> int:
    column = _COLUMN_OF.get(subject.kind)
    if column is None:
        return 0
    with transaction(connection):
        found = connection.execute(
            f"SELECT seq, user_id, text FROM memories WHERE {column} = ?",  # noqa: S608 (ours)
            (subject.value,),
        ).fetchall()
        for seq, user_id, text in found:
            # The index keeps no texts: it has to be told again what it is to forget.
            words = " ".join(terms.of_text(text))
            connection.execute(_UNINDEX, (seq, _owner(user_id), words))
            connection.execute("DELETE FROM memories WHERE seq = ?", (seq,))
        if found:
            connection.execute("INSERT INTO memory_terms (memory_terms) VALUES ('optimize')")
            unkeep(connection, [seq for seq, _, _ in found])
    truncate_log(connection)
    return len(found)


def _owner(user_id: str) -> str:
    """Make one term of a user's id, whatever characters it has."""
    return "u" + blake2b(user_id.encode(), digest_size=12).hexdigest()
