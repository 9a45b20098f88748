"""The long-term memory in an SQLite file: full text by FTS5, ranked by BM25; vectors searched here.

Texts are cut into terms before they reach FTS5 (`effects/memory/terms.py`): its own tokenisers take
a Chinese sentence for one word, and its trigrams miss words of two characters. A vector is never
changed: a new one has a larger number, and every erasure begins a generation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from hashlib import blake2b
from pathlib import Path
from sqlite3 import Error
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, bindparam, column, delete, func, select, table, text

from contract.stores import MemoryEntry, Recall
from effects.memory import terms
from effects.memory.embeddings import Embedder, Vector
from effects.memory.store import (
    ENTRY,
    MEMORIES,
    VECTORS,
    EntryStore,
    VectorCounts,
    count_vectors,
    entry_of,
)
from effects.memory.vectors import Matrices, Matrix, VectorRow
from effects.stores.database import Database
from effects.stores.sqlite import SqliteDatabase, drive, read_only
from effects.stores.tables import BoundStatement, Schema, Statement, Transaction
from effects.stores.values import MEMORY_CODES, DataSubject

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
MEMORY: Final = Schema(
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

_INSERT: Final = Statement(
    lambda insert: (
        insert(MEMORIES)
        .values({one.name: bindparam(one.name) for one in ENTRY})
        .on_conflict_do_nothing()
        .returning(MEMORIES.c.seq)
    )
)
_INDEX: Final = Statement(
    text("INSERT INTO memory_terms (rowid, owner, terms) VALUES (:seq, :owner, :terms)")
)
# The index holds no texts: it has to be given again what it is to remove.
_UNINDEX: Final = Statement(
    text(
        "INSERT INTO memory_terms (memory_terms, rowid, owner, terms) "
        "VALUES ('delete', :seq, :owner, :terms)"
    )
)
_COMPACT: Final = Statement(text("INSERT INTO memory_terms (memory_terms) VALUES ('optimize')"))
# The owner's column weighs nothing in the rank; equal ranks: the newest first.
_SEARCH: Final = Statement(
    text("""
SELECT memory_id, memories.user_id, text, session_id, relation, confidence
FROM memory_terms JOIN memories ON memories.seq = memory_terms.rowid
WHERE memory_terms MATCH :match AND user_id = :user_id
  AND (:session IS NULL OR session_id IS NOT :session)
  AND (:relation IS NULL OR relation = :relation)
  AND (:maker IS NULL OR seq IN (
    SELECT seq FROM memory_waiting WHERE made_by = :maker AND memory_waiting.user_id = :user_id
  ))
ORDER BY bm25(memory_terms, 0.0, 1.0), seq DESC LIMIT :limit
""")
)
_CHOSEN: Final = Statement(
    select(MEMORIES.c.seq, *ENTRY).where(
        MEMORIES.c.seq.in_(text("SELECT value FROM json_each(:seqs)")),
        MEMORIES.c.user_id == bindparam("user_id"),
    )
)
_GENERATION: Final = Statement(text("SELECT generation FROM memory_generations"))
_NEXT_GENERATION: Final = Statement(
    text("UPDATE memory_generations SET generation = generation + 1")
)
_REMOVE: Final = [
    Statement(delete(one).where(one.c.seq == bindparam("seq")))
    for one in (MEMORIES, VECTORS, table("memory_waiting", column("seq")))
]

_NUMBERED: Final = table(
    "memory_vectors",
    *map(column, ("number", "seq", "session_id", "relation", "vector", "made_by", "user_id")),
)
_N = _NUMBERED.c
_NEWER: Final = (
    _N.made_by == bindparam("maker"),
    _N.user_id == bindparam("user_id"),
    _N.number > bindparam("last"),
)
_COUNT_NEWER: Final = Statement(select(func.count()).select_from(_NUMBERED).where(*_NEWER))
_READ_NEWER: Final = Statement(
    select(_N.number, _N.seq, _N.session_id, _N.relation, _N.vector)
    .where(*_NEWER)
    .order_by(_N.number)
    .limit(bindparam("limit"))
)
_AT_ONCE = 256
"""Rows that are read together: few, so that the next ones reuse their memory."""


class SqliteEntries(EntryStore):
    """Entries in an SQLite file; made by `SqliteEntries.open(place)`."""

    def __init__(self, database: Database, embedder: Embedder | None, least: float) -> None:
        super().__init__(database, embedder, least)
        self._matrices = Matrices(embedder.dimensions if embedder else 0)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, place: str | Path, embedder: Embedder | None, least: float
    ) -> AsyncIterator[SqliteEntries]:
        """Open the file, as `SqliteDatabase` does, and register the embedder."""
        async with SqliteDatabase.open(place, MEMORY, MEMORY_CODES) as database:
            store = cls(database, embedder, least)
            if embedder is not None:
                await database.transact(store._register())
            yield store

    def _text_search(
        self, query: Recall, terms: Sequence[str], maker: str | None
    ) -> BoundStatement:
        # Terms hold letters and digits alone, and stand in quotes: no query can be syntax.
        any_term = " OR ".join(f'"{term}"' for term in terms)
        return _SEARCH(
            match=f"owner : {_owner(query.user_id)} AND terms : ({any_term})",
            user_id=query.user_id,
            session=query.except_session,
            relation=query.relation,
            maker=maker,
            limit=query.limit,
        )

    def _nearest(self, query: Recall, vector: Vector) -> Transaction[Sequence[MemoryEntry]]:
        user_id = query.user_id
        rows, _ = yield _GENERATION()
        matrix = self._matrices.of(user_id, rows[0][0])
        yield from self._catch_up(user_id, matrix)
        seqs = matrix.best(vector, query, self._least)
        self._matrices.trim()
        rows, _ = yield _CHOSEN(seqs=msgspec.json.encode(seqs).decode(), user_id=user_id)
        entries = {seq: entry_of(row) for seq, *row in rows}
        return [entries[seq] for seq in seqs if seq in entries]

    def _catch_up(self, user_id: str, matrix: Matrix) -> Transaction[None]:
        """Add the vectors that are newer than those in a matrix."""
        newer = {"maker": self._maker, "user_id": user_id}
        rows, _ = yield _COUNT_NEWER(**newer, last=matrix.last)
        if not rows[0][0]:
            return
        matrix.reserve(rows[0][0])
        while rows:
            rows, _ = yield _READ_NEWER(**newer, last=matrix.last, limit=_AT_ONCE)
            matrix.extend([VectorRow(*row) for row in rows])

    def _insert(self, entry: MemoryEntry) -> Transaction[int | None]:
        rows, _ = yield _INSERT(**msgspec.structs.asdict(entry))
        if not rows:
            return None
        seq: int = rows[0][0]
        yield _INDEX(seq=seq, owner=_owner(entry.user_id), terms=_terms(entry.text))
        return seq

    def _erase(self, condition: ColumnElement[bool], subject: DataSubject) -> Transaction[int]:
        found = select(MEMORIES.c.seq, MEMORIES.c.user_id, MEMORIES.c.text).where(condition)
        rows, _ = yield Statement(found)(value=subject.value)
        for seq, user_id, words in rows:
            yield _UNINDEX(seq=seq, owner=_owner(user_id), terms=_terms(words))
            for statement in _REMOVE:
                yield statement(seq=seq)
        if rows:
            yield _COMPACT()
            yield _NEXT_GENERATION()
        return len(rows)

    def _encode(self, vector: Vector) -> bytes:
        return vector.tobytes()


def vectors_in_file(path: Path) -> VectorCounts | None:
    """Count what an SQLite file holds; None where it cannot be read, or has no such tables yet."""
    try:
        with closing(read_only(path)) as connection:
            return drive(connection, count_vectors())
    except Error:
        return None


def _terms(words: str) -> str:
    return " ".join(terms.of_text(words))


def _owner(user_id: str) -> str:
    """Make one term of a user's id, whatever characters it has."""
    return "u" + blake2b(user_id.encode(), digest_size=12).hexdigest()
