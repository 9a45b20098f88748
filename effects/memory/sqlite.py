"""Memory in a local SQLite file: entries, their terms (FTS5, ranked by BM25) and their vectors.

Texts are cut into terms before they reach FTS5 (`effects/memory/terms.py`): its own tokenisers take
a Chinese sentence for one word, and its trigrams miss words of two characters.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from contract.stores import MemoryEntry
from effects.codes import MEMORY_CODES
from effects.memory import terms
from effects.memory.entries import COLUMNS, entry_of
from effects.memory.longterm import LongTermMemory
from effects.memory.shelf import Found, Stored, merged
from effects.memory.sqlite_vectors import VECTOR_TABLES, SqliteVectors, unkeep, wait
from effects.sqlite import SqliteFile, erasing, reading, transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from contract.stores import Recall
    from effects.embeddings import Embedder, Vector, Vectors
    from effects.migrations import Migrations
    from effects.whose import Whose


MIGRATIONS: Migrations = (
    (
        """CREATE TABLE memories (
            seq INTEGER PRIMARY KEY, memory_id TEXT NOT NULL, user_id TEXT NOT NULL,
            text TEXT NOT NULL, session_id TEXT, relation TEXT, confidence REAL,
            UNIQUE (user_id, text)
        )""",
        # Terms only: the texts are above. The owner is a term too, so that a search touches the
        # entries of one user and not everybody's.
        """CREATE VIRTUAL TABLE memory_terms USING fts5 (
            owner, terms, content = '', tokenize = 'unicode61 remove_diacritics 0'
        )""",
    ),
    VECTOR_TABLES,
    ("CREATE INDEX memories_of_a_session ON memories (session_id)",),
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
        async with SqliteFile.open("memory", path, MIGRATIONS, MEMORY_CODES) as file:
            vectors = SqliteVectors(embedder, least)
            if embedder is not None:
                await file.run(vectors.register)
            memory = cls(SqliteShelf(file, vectors), embedder)
            async with memory.running():
                yield memory


class SqliteShelf:
    """Implements `effects.memory.shelf.Shelf`."""

    fault = None

    def __init__(self, file: SqliteFile, vectors: SqliteVectors) -> None:
        self._file = file
        self._vectors = vectors

    async def by_text(self, query: Recall, wanted: Sequence[str]) -> tuple[MemoryEntry, ...]:
        """Find what shares terms with the query, best first."""
        return await self._file.run(_by_text, query, wanted, None)

    async def by_vector(self, query: Recall, wanted: Sequence[str], vector: Vector) -> Found:
        """Find what is near the vector, and by full text what has none of this maker's."""
        return await self._file.run(_by_vector, self._vectors, query, wanted, vector)

    async def add(self, entries: Sequence[MemoryEntry]) -> list[Stored]:
        """Keep all entries or none; gives those that are new."""
        return await self._file.run(_add, entries)

    async def keep(self, stored: Sequence[Stored], vectors: Vectors) -> None:
        """Keep the vectors of entries that are still there."""
        await self._file.run(self._vectors.keep, stored, vectors)

    async def waiting(self, after: int, limit: int) -> list[Stored]:
        """Give entries that wait for a vector, by seq."""
        return await self._file.run(self._vectors.waiting, after, limit)

    async def forget(self, whose: Whose) -> int:
        """Remove entries with their terms and vectors; returns how many."""
        return await self._file.run(_forget, whose)

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
) -> Found:
    with reading(connection):
        nearest = vectors.nearest(connection, query, vector)
        if nearest is None:
            return Found(_by_text(connection, query, wanted, None), "text", waiting=False)
        chosen = _chosen(connection, query.user_id, nearest)
        if not vectors.wait_of(connection, query.user_id):
            return Found(chosen, "vectors", waiting=False)
        others = _by_text(connection, query, wanted, vectors.maker)
        return Found(merged(chosen, others, query.limit), "vectors_and_text", waiting=True)


def _chosen(
    connection: sqlite3.Connection, user_id: str, seqs: Sequence[int]
) -> tuple[MemoryEntry, ...]:
    rows = connection.execute(_CHOSEN, (msgspec.json.encode(seqs).decode(), user_id))
    entries = {seq: entry_of(row) for seq, *row in rows}
    return tuple(entries[seq] for seq in seqs if seq in entries)


def _add(connection: sqlite3.Connection, entries: Sequence[MemoryEntry]) -> list[Stored]:
    stored = []
    with transaction(connection):
        for entry in entries:
            done = connection.execute(_WRITE, msgspec.structs.astuple(entry))
            if done.rowcount and (seq := done.lastrowid) is not None:
                words = " ".join(terms.of_text(entry.text))
                connection.execute(_INDEX, (seq, _owner(entry.user_id), words))
                wait(connection, entry.user_id, seq)
                stored.append(Stored(seq, entry.user_id, entry.text))
    return stored


def _forget(connection: sqlite3.Connection, whose: Whose) -> int:
    column = _COLUMN_OF.get(whose.kind)
    if column is None:
        return 0
    with erasing(connection):
        found = connection.execute(
            f"SELECT seq, user_id, text FROM memories WHERE {column} = ?",  # noqa: S608 (ours)
            (whose.value,),
        ).fetchall()
        for seq, user_id, text in found:
            # The index keeps no texts: it has to be told again what it is to forget.
            words = " ".join(terms.of_text(text))
            connection.execute(_UNINDEX, (seq, _owner(user_id), words))
            connection.execute("DELETE FROM memories WHERE seq = ?", (seq,))
        if found:
            connection.execute("INSERT INTO memory_terms (memory_terms) VALUES ('optimize')")
            unkeep(connection, [seq for seq, _, _ in found])
    return len(found)


def _owner(user_id: str) -> str:
    """Make one term of a user's id, whatever characters it has."""
    return "u" + blake2b(user_id.encode(), digest_size=12).hexdigest()
