"""The long-term memory in an SQLite file: full text by FTS5, ranked by BM25; vectors searched here.

Texts are cut into terms before they reach FTS5 (`text_terms`): its own tokenisers take a Chinese
sentence for one word, and its trigrams miss words of two characters. A vector is never changed: a
new one has a larger number, and every erasure begins a generation. Vectors are compared in this
process one by one, a user's alone: exact.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from hashlib import blake2b
from pathlib import Path
from sqlite3 import Error
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from sqlalchemy import ColumnElement, bindparam, column, delete, func, select, table, text

from contract.stores import DataSubject, MemoryEntry, NearEntry, Recall
from effects.memory.embeddings import Embedder, Vector
from effects.memory.store import (
    ENTRY,
    MAKERS,
    MEMORIES,
    PROGRESS,
    TYPED,
    VECTORS,
    WAITING,
    EntryStore,
    VectorCounts,
    count_vectors,
    entry_of,
    row_of,
    text_terms,
)
from effects.stores.database import Database
from effects.stores.sqlite import SqliteDatabase, drive, read_only
from effects.stores.tables import (
    MEMORY_CODES,
    BoundStatement,
    Schema,
    Statement,
    Transaction,
    creation,
)

MOST_BYTES = 256 * 1_048_576
_FEWEST = 16
_NONE = -1


class VectorRow(NamedTuple):
    """A vector as it is stored; `number` grows with every one that is, `seq` is the entry's."""

    number: int
    seq: int
    session_id: str | None
    relation: str | None
    vector: bytes


class _Codes(dict[str | None, int]):
    """Small numbers for names; a name that is new gets the next one."""

    def __missing__(self, name: str | None) -> int:
        """Number a name."""
        return self.setdefault(name, len(self) - 1)


class Matrix:
    """One user's vectors by one maker, as far as they have been read."""

    def __init__(self, dimensions: int) -> None:
        self.last = 0
        """The number of the newest vector that has been read."""
        self._size = 0
        self._vectors = np.empty((0, dimensions), np.float32)
        self._facts = np.empty((3, 0), np.int64)  # seq, code of the session, code of the relation
        self._codes = _Codes({None: _NONE})

    def __len__(self) -> int:
        return self._size

    @property
    def bytes(self) -> int:
        """How much memory they take."""
        return self._vectors.nbytes + self._facts.nbytes

    def reserve(self, more: int) -> None:
        """Allocate space for so many more, and some to spare."""
        size = self._size + more
        if size <= len(self._vectors):
            return
        room = max(_FEWEST, size + size // 4)
        # Untouched, what is to spare takes no memory yet.
        vectors = np.empty((room, self._vectors.shape[1]), np.float32)
        vectors[: self._size] = self._vectors[: self._size]
        facts = np.empty((len(self._facts), room), np.int64)
        facts[:, : self._size] = self._facts[:, : self._size]
        self._vectors, self._facts = vectors, facts

    def extend(self, rows: Sequence[VectorRow]) -> None:
        """Add newer vectors, in their order."""
        if not rows:
            return
        self.reserve(len(rows))
        start, self._size = self._size, self._size + len(rows)
        numbers, seqs, sessions, relations, vectors = zip(*rows, strict=True)
        facts = self._facts[:, start : self._size]
        facts[0] = seqs
        facts[1] = [self._codes[name] for name in sessions]
        facts[2] = [self._codes[name] for name in relations]
        # Each goes where it stays: joined first, all would be in memory twice.
        place = self._vectors.data.cast("B")
        width = self._vectors.itemsize * self._vectors.shape[1]
        for begin, vector in enumerate(vectors, start):
            place[begin * width : (begin + 1) * width] = vector
        self.last = numbers[-1]

    def best(self, vector: Vector, query: Recall, least: float) -> list[tuple[int, float]]:
        """Return the entries nearest to a vector, and how near, those above `least` alone.

        Of equally near ones the newest is first. What the query rules out is out before the
        nearest are chosen.
        """
        scores = np.vecdot(self._vectors[: self._size], vector)
        found = np.flatnonzero(self._allowed(query) & (scores > least))
        if len(found) > query.limit:
            worst = np.partition(scores[found], -query.limit)[-query.limit]
            found = found[scores[found] >= worst]
        seqs = self._facts[0, found]
        order = np.lexsort((-seqs, -scores[found]))[: query.limit]
        return list(zip(seqs[order].tolist(), scores[found][order].tolist(), strict=True))

    def _allowed(self, query: Recall) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        allowed = np.ones(self._size, np.bool_)
        _, sessions, relations = self._facts[:, : self._size]
        if query.except_session is not None:
            allowed &= sessions != self._known(query.except_session)
        if query.relation is not None:
            allowed &= relations == self._known(query.relation)
        return allowed

    def _known(self, name: str) -> int:
        return self._codes.get(name, len(self._codes))


class Matrices:
    """The matrices of the users recalled last, within so many bytes."""

    def __init__(self, dimensions: int, most_bytes: int = MOST_BYTES) -> None:
        self._dimensions = dimensions
        self._most = most_bytes
        self._by_user: OrderedDict[str, Matrix] = OrderedDict()
        self._bytes = 0
        self._generation = 0

    def __len__(self) -> int:
        return len(self._by_user)

    def take(self, user_id: str, generation: int) -> Matrix:
        """Take a user's matrix out, an empty one where there is none.

        Those of an older generation are dropped; a generation ends with every erasure.
        """
        if generation != self._generation:
            self._by_user.clear()
            self._bytes = 0
            self._generation = generation
        matrix = self._by_user.pop(user_id, None)
        if matrix is None:
            return Matrix(self._dimensions)
        self._bytes -= matrix.bytes
        return matrix

    def put(self, user_id: str, matrix: Matrix) -> None:
        """Put a user's matrix back, unless it is empty; those used longest ago go until all fit."""
        if not len(matrix):
            return  # most users have no memories, and there is no end of users
        self._by_user[user_id] = matrix
        self._bytes += matrix.bytes
        while self._bytes > self._most:
            _, dropped = self._by_user.popitem(last=False)
            self._bytes -= dropped.bytes


_VECTOR_TABLES = (
    # Session and relation are the entry's: what is ruled out is so before it is read.
    """CREATE TABLE memory_vectors (
        number INTEGER PRIMARY KEY AUTOINCREMENT, seq INTEGER NOT NULL, user_id TEXT NOT NULL,
        session_id TEXT, relation TEXT, made_by TEXT NOT NULL, vector BLOB NOT NULL,
        UNIQUE (seq, made_by)
    )""",
    "CREATE INDEX vectors_of_a_user ON memory_vectors (made_by, user_id, number)",
    "CREATE TABLE memory_generations (generation INTEGER NOT NULL)",
    "INSERT INTO memory_generations VALUES (0)",
)
MEMORY: Final = Schema(
    "memory",
    (MEMORIES, MAKERS, WAITING, PROGRESS),
    initial=(
        "CREATE UNIQUE INDEX memories_of_a_user ON memories (user_id, text)",
        # Terms only: the texts are above. The owner is a term too, so that a search touches the
        # entries of one user alone.
        """CREATE VIRTUAL TABLE memory_terms USING fts5 (
            owner, terms, content = '', tokenize = 'unicode61 remove_diacritics 0'
        )""",
        *_VECTOR_TABLES,
    ),
    steps=(
        {"sqlite": (*creation(MAKERS, "sqlite"), *creation(WAITING, "sqlite"), *_VECTOR_TABLES)},
        {"sqlite": ("CREATE INDEX memories_of_a_session ON memories (session_id)",)},
        {"sqlite": (*TYPED, *creation(PROGRESS, "sqlite"))},
    ),
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
SELECT memory_id, memories.user_id, text, session_id, relation, confidence, kind, at, changed_in
FROM memory_terms JOIN memories ON memories.seq = memory_terms.rowid
WHERE memory_terms MATCH :match AND user_id = :user_id
  AND (:session IS NULL OR session_id IS NOT :session OR changed_in IS NOT NULL)
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
    for one in (MEMORIES, VECTORS, WAITING)
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
        self.matrices = Matrices(embedder.dimensions if embedder else 0)

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

    def _nearest(self, query: Recall, vector: Vector) -> Transaction[Sequence[NearEntry]]:
        user_id = query.user_id
        rows, _ = yield _GENERATION()
        matrix = self.matrices.take(user_id, rows[0][0])
        yield from self._catch_up(user_id, matrix)
        self.matrices.put(user_id, matrix)
        best = matrix.best(vector, query, self._least)
        seqs = msgspec.json.encode([seq for seq, _ in best]).decode()
        rows, _ = yield _CHOSEN(seqs=seqs, user_id=user_id)
        entries = {seq: entry_of(row) for seq, *row in rows}
        return [NearEntry(entries[seq], near) for seq, near in best if seq in entries]

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
        rows, _ = yield _INSERT(**row_of(entry))
        if not rows:
            return None
        seq: int = rows[0][0]
        yield _INDEX(seq=seq, owner=_owner(entry.user_id), terms=_terms(entry.text))
        return seq

    def _remove(self, condition: ColumnElement[bool], **values: object) -> Transaction[int]:
        found = select(MEMORIES.c.seq, MEMORIES.c.user_id, MEMORIES.c.text).where(condition)
        rows, _ = yield Statement(found)(**values)
        for seq, user_id, words in rows:
            yield _UNINDEX(seq=seq, owner=_owner(user_id), terms=_terms(words))
            for statement in _REMOVE:
                yield statement(seq=seq)
        if rows:
            yield _NEXT_GENERATION()
        return len(rows)

    def _erase(self, subject: DataSubject) -> Transaction[int]:
        removed = yield from super()._erase(subject)
        if removed:
            yield _COMPACT()
        return removed

    def _position(self, text: ColumnElement[Any], part: ColumnElement[Any]) -> ColumnElement[int]:
        return func.instr(text, part)

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
    return " ".join(text_terms(words))


def _owner(user_id: str) -> str:
    """Make one term of a user's id, whatever characters it has."""
    return "u" + blake2b(user_id.encode(), digest_size=12).hexdigest()
