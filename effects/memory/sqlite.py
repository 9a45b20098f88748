"""Memory in a local SQLite file, found by full-text search (FTS5) and ranked by BM25.

Texts are cut into terms before they reach FTS5 (`effects/memory/terms.py`): its own tokenisers take
a Chinese sentence for one word, and its trigrams miss words of two characters.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from contract.memory import MemoryEntry
from effects.memory import terms
from effects.memory.entries import check_entry, check_query
from effects.migrations import Migrations
from effects.sqlite import SqliteFile, erasing, transaction
from effects.storable import require_storable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator
    from pathlib import Path

    from contract.memory import Recall
    from effects.whose import Whose

_COLUMNS = "memory_id, user_id, text, session_id, relation, confidence"

_MIGRATIONS: Migrations = (
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
)
_WRITE = f"INSERT INTO memories ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"  # noqa: S608 (the columns are ours)
_INDEX = "INSERT INTO memory_terms (rowid, owner, terms) VALUES (?, ?, ?)"
_UNINDEX = "INSERT INTO memory_terms (memory_terms, rowid, owner, terms) VALUES ('delete', ?, ?, ?)"
_COLUMN_OF = {"user": "user_id", "chat": "session_id"}
# The owner's column weighs nothing in the rank; equal ranks: the newest first.
_RECALL = f"""
SELECT {_COLUMNS} FROM memory_terms JOIN memories ON memories.seq = memory_terms.rowid
WHERE memory_terms MATCH ?1 AND user_id = ?2
  AND (?3 IS NULL OR session_id IS NOT ?3) AND (?4 IS NULL OR relation = ?4)
ORDER BY bm25(memory_terms, 0.0, 1.0), seq DESC LIMIT ?5
"""  # noqa: S608 (as above)


class SqliteMemory:
    """Entries in an SQLite file; made by `SqliteMemory.open(path)`."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    @classmethod
    @asynccontextmanager
    async def open(cls, path: str | Path) -> AsyncIterator[SqliteMemory]:
        """Open the file, making it where there is none; raises `StoreNotOpened`."""
        file = SqliteFile("memory", unavailable="memory_unavailable", failed="memory_failed")
        await file.open(path, _MIGRATIONS)
        try:
            yield cls(file)
        finally:
            await file.aclose()

    async def recall(self, site: str, query: Recall) -> tuple[MemoryEntry, ...]:
        """Find what shares terms with the query, best first; no terms, no entries."""
        check_query(query)
        wanted = terms.of_query(query.query)
        if not wanted or query.limit <= 0:
            return ()
        return await self._file.run(_recall, query, wanted)

    async def write(self, site: str, entries: tuple[MemoryEntry, ...]) -> int:
        """Remember all entries or none; returns how many were new."""
        for entry in entries:
            check_entry(entry)
        return await self._file.run(_write, entries) if entries else 0

    async def forget(self, whose: Whose) -> int:
        """Remove what is known of a user, or was learnt in a chat; returns how many entries."""
        require_storable("memory_failed", whose.value)
        return await self._file.run(_forget, whose)

    async def aclose(self) -> None:
        """Close the file; idempotent."""
        await self._file.aclose()


def _recall(
    connection: sqlite3.Connection, query: Recall, wanted: list[str]
) -> tuple[MemoryEntry, ...]:
    # Terms hold letters and digits alone, and stand in quotes: no query can be syntax.
    any_term = " OR ".join(f'"{term}"' for term in wanted)
    match = f"owner : {_owner(query.user_id)} AND terms : ({any_term})"
    rows = connection.execute(
        _RECALL, (match, query.user_id, query.except_session, query.relation, query.limit)
    ).fetchall()
    return tuple(_entry(row) for row in rows)


def _write(connection: sqlite3.Connection, entries: tuple[MemoryEntry, ...]) -> int:
    written = 0
    with transaction(connection):
        for entry in entries:
            done = connection.execute(_WRITE, msgspec.structs.astuple(entry))
            if done.rowcount:
                words = " ".join(terms.of_text(entry.text))
                connection.execute(_INDEX, (done.lastrowid, _owner(entry.user_id), words))
                written += 1
    return written


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
    return len(found)


def _owner(user_id: str) -> str:
    """Make one term of a user's id, whatever characters it has."""
    return "u" + blake2b(user_id.encode(), digest_size=12).hexdigest()


def _entry(row: tuple[Any, ...]) -> MemoryEntry:
    memory_id, user_id, text, session_id, relation, confidence = row
    return MemoryEntry(
        memory_id=memory_id,
        user_id=user_id,
        text=text,
        session_id=session_id,
        relation=relation,
        confidence=confidence,
    )
