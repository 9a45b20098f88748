"""Entries of the long-term memory and their vectors, in a database; what all databases do alike.

Vectors belong to the maker who made them, a model and its dimensions: those of two makers are never
compared. Entries wait for the vectors of every maker that is registered.
"""

from __future__ import annotations

import logging
import re
import time
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any, Final, Literal, NamedTuple

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Double,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    MetaData,
    Table,
    Text,
    and_,
    bindparam,
    case,
    cast,
    column,
    delete,
    exists,
    func,
    insert,
    select,
    table,
    update,
)
from sqlalchemy.types import UserDefinedType

from contract.errors import EffectFailed
from contract.stores import (
    READ_MEANWHILE,
    DataSubject,
    FindNear,
    MemoryEntry,
    NearEntry,
    Reading,
    Recall,
    Revision,
    require_storable,
)
from effects.memory.embeddings import Embedder, Vector, Vectors, maker
from effects.stores.database import Database, DatabaseStore
from effects.stores.tables import (
    WITHOUT_ROWID,
    BoundStatement,
    Statement,
    Transaction,
    bound,
    sequence,
    texts,
)

log = logging.getLogger(__name__)

RecallMethod = Literal["vectors", "vectors_and_text", "text"]
"""How entries were found: all by vectors, those without one by full text, or all by full text."""


class StoredEntry(NamedTuple):
    """A stored entry; its seq may later be another's: user and text tell them apart."""

    seq: int
    user_id: str
    text: str


class AddedEntries(NamedTuple):
    """The entries that are new, and how many were stored by an earlier call of the same write."""

    new: list[StoredEntry]
    repeated: int


class ImportedEntries(NamedTuple):
    """The entries that are new, and the numbers of those whose id their user has already."""

    new: list[StoredEntry]
    taken: list[int]


class RecallResult(NamedTuple):
    """Entries, best first; `waiting` means that some of the user's have no vector yet."""

    entries: tuple[NearEntry, ...]
    by: RecallMethod
    waiting: bool


class VectorCounts(NamedTuple):
    """How many entries there are, and how many vectors of each maker."""

    entries: int
    vectors: Mapping[str, int]

    def lacking(self, maker: str) -> str:
        """Describe how many entries have no vector of a maker's; "" if all have one."""
        missing = self.entries - self.vectors.get(maker, 0)
        if missing <= 0:
            return ""
        others = ", ".join(repr(other) for other in sorted(self.vectors) if other != maker)
        ignored = f"; vectors of {others} are not compared with its" if others else ""
        return (
            f"{missing} of {self.entries} entries have none of {maker!r} yet, "
            f"and are found by full text until it has made them{ignored}"
        )


def check_entry(entry: MemoryEntry) -> None:
    """Raise `EffectFailed(memory_failed)` for an entry with text that cannot be stored."""
    require_storable(
        "memory_failed",
        entry.memory_id,
        entry.user_id,
        entry.text,
        entry.session_id,
        entry.relation,
        entry.kind,
        *entry.changed_in,
    )


def check_revision(revision: Revision | None) -> None:
    """Raise `EffectFailed(memory_failed)` for a revision with text that cannot be stored."""
    if revision is not None:
        check_reading(revision.reading)
        require_storable("memory_failed", revision.message_id, revision.after, *revision.removed)


def check_reading(reading: Reading) -> None:
    """Raise `EffectFailed(memory_failed)` for a conversation that cannot have been stored."""
    require_storable("memory_failed", reading.user_id, reading.flow, reading.session_id)


def stamped(entry: MemoryEntry, wall: Callable[[], float]) -> MemoryEntry:
    """Return an entry with its time: now, where it has none; `wall` returns seconds."""
    return entry if entry.at is not None else msgspec.structs.replace(entry, at=int(wall()))


def recalls_of(query: FindNear) -> list[Recall]:
    """Return a recall for each text."""
    return [Recall(user_id=query.user_id, query=one, limit=query.limit) for one in query.texts]


def check_query(query: Recall) -> None:
    """Raise `EffectFailed(memory_failed)` for a query with text that cannot have been stored."""
    require_storable(
        "memory_failed", query.user_id, query.query, query.except_session, query.relation
    )


def merged(
    by_vector: Sequence[NearEntry], by_text: Sequence[NearEntry], limit: int
) -> tuple[NearEntry, ...]:
    """Take from both in turn, the nearest vector first: their scores cannot be compared."""
    both = chain.from_iterable(zip_longest(by_vector, by_text))
    return tuple(entry for entry in both if entry is not None)[:limit]


# Ideographs with their extensions, kana, hangul: scripts written without spaces between words.
_DENSE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUNS = re.compile(rf"([{_DENSE}]+)|([^\W_{_DENSE}]+)")

MOST_OF_A_QUERY = 200


def text_terms(text: str) -> list[str]:
    """Cut a text that is to be found into terms.

    Runs of Chinese, Japanese or Korean characters become their characters and overlapping pairs
    (`喜欢茶` gives 喜, 欢, 茶, 喜欢, 欢茶), so that Chinese is found without a dictionary; other
    letters and digits become lower-case words.
    """
    terms: list[str] = []
    for dense, word in _RUNS.findall(fold(text)):
        terms += [word] if word else [*dense, *_pairs(dense)]
    return terms


def query_terms(text: str) -> list[str]:
    """Cut a query into terms, each once, the first two hundred of them.

    Of Chinese, Japanese and Korean the pairs alone: they are what tells texts apart.
    """
    terms: dict[str, None] = {}
    for dense, word in _RUNS.findall(fold(text)):
        terms.update(dict.fromkeys([word] if word else _pairs(dense) or [dense]))
    return list(terms)[:MOST_OF_A_QUERY]


def fold(text: str) -> str:
    """Make equal what looks equal: full-width letters, ligatures, upper case."""
    return unicodedata.normalize("NFKC", text).casefold()


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)]


class _Halfvec(UserDefinedType[bytes]):
    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "halfvec"


_META: Final = MetaData()
MEMORIES: Final = Table(
    "memories",
    _META,
    sequence(Identity(always=True)),
    *texts("memory_id", "user_id", "text"),
    *texts("session_id", "relation", nullable=True),
    Column("confidence", Double),
    *texts("kind", nullable=True),
    Column("at", BigInteger),
    # As `,"id","id"`: each id stands between unescaped quotes.
    *texts("changed_in", nullable=True),
    Index("memories_of_a_session", "session_id"),
    Index("memories_by_id", "user_id", "memory_id"),
)
_IS_CHANGED: Final[Any] = MEMORIES.c.changed_in.is_not(None)
# Of the rows alone: twenty ids may be longer than what an index can hold.
Index(
    "changed_memories",
    MEMORIES.c.seq,
    sqlite_where=_IS_CHANGED,
    postgresql_where=_IS_CHANGED,
)
ENTRY: Final = [column for column in MEMORIES.c if column.name != "seq"]
"""The columns of an entry, in the order of its fields."""
PROGRESS: Final = Table(
    "memory_progress",
    _META,
    *texts("user_id", "flow", "session_id", key=True),
    *texts("message_id"),
    Index("progress_of_a_session", "session_id"),
    **WITHOUT_ROWID,
)
MAKERS: Final = Table("memory_makers", _META, *texts("made_by", key=True), **WITHOUT_ROWID)
WAITING: Final = Table(
    "memory_waiting",
    _META,
    *texts("made_by", "user_id", key=True),
    sequence(ForeignKey("memories.seq", ondelete="CASCADE")),
    Index("waiting_in_order", "seq", "made_by"),
    **WITHOUT_ROWID,
)
TYPED: Final = (
    "ALTER TABLE memories ADD COLUMN kind TEXT",
    "ALTER TABLE memories ADD COLUMN at BIGINT",
    "ALTER TABLE memories ADD COLUMN changed_in TEXT",
    "CREATE INDEX changed_memories ON memories (seq) WHERE changed_in IS NOT NULL",
    "CREATE INDEX memories_by_id ON memories (user_id, memory_id)",
)
"""What gives stored entries the columns of their type, their time and their changes."""
VECTORS: Final = table(
    "memory_vectors",
    *map(column, ("seq", "user_id", "session_id", "relation", "made_by", "vector")),
)
_M, _W, _V, _P = MEMORIES.c, WAITING.c, VECTORS.c, PROGRESS.c

_MAKER: Final[Any] = bindparam("maker", type_=Text)
_SEQ: Final[Any] = bindparam("seq", type_=BigInteger)
_USER: Final[Any] = bindparam("user_id", type_=Text)
_WAIT_COLUMNS: Final = ["made_by", "user_id", "seq"]
_HAS_VECTOR: Final = exists().where(_V.seq == _M.seq, _V.made_by == _MAKER)

_COUNT_ENTRIES: Final = Statement(select(func.count()).select_from(MEMORIES))
_COUNT_VECTORS: Final = Statement(select(_V.made_by, func.count()).group_by(_V.made_by))
_REGISTER: Final = Statement(
    lambda insert: insert(MAKERS).values(made_by=_MAKER).on_conflict_do_nothing()
)
_ALL_WAIT: Final = Statement(
    insert(WAITING).from_select(
        _WAIT_COLUMNS, select(cast(_MAKER, Text), _M.user_id, _M.seq).where(~_HAS_VECTOR)
    )
)
_WAIT: Final = Statement(
    insert(WAITING).from_select(
        _WAIT_COLUMNS, select(MAKERS.c.made_by, cast(_USER, Text), cast(_SEQ, BigInteger))
    )
)
_REGISTERED: Final = Statement(select(exists().where(MAKERS.c.made_by == _MAKER)))
_ANY_WAITS: Final = Statement(select(exists().where(_W.made_by == _MAKER)))
_USER_WAITS: Final = Statement(select(exists().where(_W.made_by == _MAKER, _W.user_id == _USER)))
_LIST_WAITING: Final = Statement(
    select(_M.seq, _M.user_id, _M.text)
    .select_from(MEMORIES.join(WAITING, _M.seq == _W.seq))
    .where(_W.made_by == _MAKER, _W.seq > bindparam("after", type_=BigInteger))
    .order_by(_W.seq)
    .limit(bindparam("limit"))
)
_REMOVE_OTHERS: Final = [
    Statement(delete(one).where(one.c.made_by != _MAKER)) for one in (MAKERS, VECTORS, WAITING)
]
# The entry may have been erased since its text was read; locked, it cannot be meanwhile.
_KEEP_VECTOR: Final = Statement(
    lambda insert: (
        insert(VECTORS)
        .from_select(
            ["seq", "user_id", "session_id", "relation", "made_by", "vector"],
            select(
                _M.seq,
                _M.user_id,
                # What another session has changed is no longer what this one knows.
                case((_M.changed_in.is_(None), _M.session_id)),
                _M.relation,
                cast(_MAKER, Text),
                cast(bindparam("vector"), LargeBinary().with_variant(_Halfvec(), "postgresql")),
            )
            .where(_M.seq == _SEQ, _M.user_id == _USER, _M.text == bindparam("text", type_=Text))
            .with_for_update(read=True, key_share=True),
        )
        .on_conflict_do_nothing()
    )
)
_REPEATED: Final = Statement(
    select(
        exists().where(
            _M.user_id == _USER,
            _M.text == bindparam("text", type_=Text),
            _M.memory_id == bindparam("memory_id", type_=Text),
        )
    )
)
_TAKEN: Final = Statement(
    select(
        exists().where(
            _M.user_id == _USER,
            _M.memory_id == bindparam("memory_id", type_=Text),
            _M.text != bindparam("text", type_=Text),
        )
    )
)
_OF_READING: Final = and_(
    *(_P[name] == bindparam(f"for_{name}") for name in ("user_id", "flow", "session_id"))
)
_READ_PROGRESS: Final = Statement(select(_P.message_id).where(_OF_READING))
_BEGIN_PROGRESS: Final = Statement(
    lambda insert: insert(PROGRESS).values(bound(PROGRESS)).on_conflict_do_nothing()
)
_MOVE_PROGRESS: Final = Statement(
    update(PROGRESS)
    .where(_OF_READING, _P.message_id == bindparam("after"))
    .values(message_id=bindparam("up_to"))
)
_FORGET_PROGRESS: Final = {
    kind: Statement(delete(PROGRESS).where(_P[name] == bindparam("value")))
    for kind, name in (("user", "user_id"), ("chat", "session_id"), ("message", "message_id"))
}
_WAIT_NO_MORE: Final = Statement(
    delete(WAITING).where(
        _W.made_by == _MAKER,
        _W.seq == _SEQ,
        exists().where(_V.made_by == _MAKER, _V.seq == _SEQ),
    )
)


def count_vectors() -> Transaction[VectorCounts]:
    """Count entries and vectors."""
    vectors, _ = yield _COUNT_VECTORS()
    entries, _ = yield _COUNT_ENTRIES()
    return VectorCounts(entries[0][0], dict(vectors))


def entry_of(row: Sequence[Any]) -> MemoryEntry:
    """Decode an entry from its columns, `ENTRY`."""
    memory_id, user_id, text, session_id, relation, confidence, kind, at, changed_in = row
    return MemoryEntry(
        memory_id=memory_id,
        user_id=user_id,
        text=text,
        session_id=session_id,
        relation=relation,
        confidence=confidence,
        kind=kind,
        at=at,
        changed_in=_SESSIONS.decode(f"[{changed_in[1:]}]") if changed_in else (),
    )


_SESSIONS: Final = msgspec.json.Decoder(tuple[str, ...])


def row_of(entry: MemoryEntry) -> dict[str, object]:
    """Encode an entry as its columns."""
    return msgspec.structs.asdict(entry) | {
        "changed_in": "".join(map(quoted_session, entry.changed_in)) or None
    }


def quoted_session(session: str) -> str:
    """Encode a session as it stands in the column `changed_in`, and as nothing else does."""
    return "," + msgspec.json.encode(session).decode()


class EntryStore(DatabaseStore, ABC):
    """Stores entries, and the vectors one maker made of them; all methods raise `EffectFailed`.

    An entry is near a vector if it is more like it than `least`. Without an embedder nothing is
    registered, and nothing is near anything.
    """

    def __init__(self, database: Database, embedder: Embedder | None, least: float) -> None:
        super().__init__(database)
        self.embedder = embedder
        self._maker = maker(embedder) if embedder else ""
        self._least = least
        self.wall: Callable[[], float] = time.time
        """Returns seconds since the Unix epoch, of entries that have no time."""

    async def by_text(self, query: Recall, terms: Sequence[str]) -> tuple[NearEntry, ...]:
        """Find by full text; there is at least one term."""
        rows, _ = await self._database.execute(self._text_search(query, terms, None))
        return tuple(NearEntry(entry_of(row)) for row in rows)

    async def by_vector(self, query: Recall, terms: Sequence[str], vector: Vector) -> RecallResult:
        """Find by vectors, and by full text what has none of the maker's, in one state."""
        return await self._database.snapshot(self._by_both(query, terms, vector))

    async def add(
        self, entries: Sequence[MemoryEntry], revision: Revision | None = None
    ) -> AddedEntries:
        """Store all entries or none; those that are new wait for their vectors.

        One that is stored under its own id was stored by this write before.
        """
        return await self._database.transact(self._add(entries, revision))

    async def add_imported(self, entries: Sequence[MemoryEntry]) -> ImportedEntries:
        """Store all entries or none, but for those with the id of another text of their user."""
        return await self._database.transact(self._add_imported(entries))

    async def progress(self, reading: Reading) -> str | None:
        """Return the message up to which a conversation has been read."""
        rows, _ = await self._database.execute(_READ_PROGRESS(**_key(reading)))
        return rows[0][0] if rows else None

    async def keep(self, stored: Sequence[StoredEntry], vectors: Vectors) -> None:
        """Store the vectors of entries, but of those that have been erased meanwhile."""
        await self._database.transact(self._keep(stored, vectors))

    async def waiting(self, after: int, limit: int) -> list[StoredEntry]:
        """List entries that wait for the maker's vector, by seq."""
        call = _LIST_WAITING(maker=self._maker, after=after, limit=limit)
        return [StoredEntry(*row) for row in (await self._database.execute(call)).rows]

    async def erase(self, subject: DataSubject) -> int:
        """Remove entries with everything that was made of them; returns how many.

        And how far the subject's conversations have been read.
        """
        return await self._database.erase(self._erase(subject))

    @abstractmethod
    def _text_search(
        self, query: Recall, terms: Sequence[str], maker: str | None
    ) -> BoundStatement:
        """Search all entries or, with a maker, those that wait for its vectors."""

    @abstractmethod
    def _nearest(self, query: Recall, vector: Vector) -> Transaction[Sequence[NearEntry]]:
        """Find the entries nearest to a vector, best first."""

    @abstractmethod
    def _insert(self, entry: MemoryEntry) -> Transaction[int | None]:
        """Store an entry and its terms; returns its seq, None if it is not new."""

    @abstractmethod
    def _remove(self, condition: ColumnElement[bool], **values: object) -> Transaction[int]:
        """Remove the entries that meet a condition on values."""

    @abstractmethod
    def _position(self, text: ColumnElement[Any], part: ColumnElement[Any]) -> ColumnElement[int]:
        """Return the expression of where a part begins in a text, 0 for nowhere."""

    @abstractmethod
    def _encode(self, vector: Vector) -> object:
        """Encode a vector as the database stores it."""

    def _register(self) -> Transaction[None]:
        """Let entries wait for this maker's vectors; remove those of others once all have one."""
        _, added = yield _REGISTER(maker=self._maker)
        if added:
            yield _ALL_WAIT(maker=self._maker)
            if lacking := (yield from count_vectors()).lacking(self._maker):
                log.warning("memory: %s", lacking)
        rows, _ = yield _ANY_WAITS(maker=self._maker)
        if not rows[0][0]:
            for statement in _REMOVE_OTHERS:
                yield statement(maker=self._maker)

    def _by_both(
        self, query: Recall, terms: Sequence[str], vector: Vector
    ) -> Transaction[RecallResult]:
        rows, _ = yield _REGISTERED(maker=self._maker)
        if not rows[0][0]:  # a process with another embedder has removed this maker's vectors
            found = yield from self._found(query, terms, None)
            return RecallResult(found, "text", waiting=False)
        nearest = yield from self._nearest(query, vector)
        rows, _ = yield _USER_WAITS(maker=self._maker, user_id=query.user_id)
        if not rows[0][0]:
            return RecallResult(tuple(nearest), "vectors", waiting=False)
        others = yield from self._found(query, terms, self._maker)
        both = merged(nearest, others, query.limit)
        return RecallResult(both, "vectors_and_text", waiting=True)

    def _found(
        self, query: Recall, terms: Sequence[str], maker: str | None
    ) -> Transaction[tuple[NearEntry, ...]]:
        if not terms:
            return ()
        rows, _ = yield self._text_search(query, terms, maker)
        return tuple(NearEntry(entry_of(row)) for row in rows)

    def _erase(self, subject: DataSubject) -> Transaction[int]:
        value = bindparam("value", type_=Text)
        yield _FORGET_PROGRESS[subject.kind](value=subject.value)
        if subject.kind == "user":
            return (yield from self._remove(_M.user_id == value, value=subject.value))
        if subject.kind != "chat":
            return 0
        learnt = yield from self._remove(_M.session_id == value, value=subject.value)
        changed = and_(_IS_CHANGED, self._position(_M.changed_in, value) > 0)
        return learnt + (yield from self._remove(changed, value=quoted_session(subject.value)))

    def _revise(self, revision: Revision) -> Transaction[bool]:
        """Note how far a conversation was read and remove entries; False where that was done.

        Raises `READ_MEANWHILE`.
        """
        key, up_to = _key(revision.reading), revision.message_id
        if revision.after is None:
            of_reading = msgspec.structs.asdict(revision.reading)
            _, moved = yield _BEGIN_PROGRESS(**of_reading, message_id=up_to)
        else:
            _, moved = yield _MOVE_PROGRESS(**key, after=revision.after, up_to=up_to)
        if not moved:
            rows, _ = yield _READ_PROGRESS(**key)
            if rows and rows[0][0] == up_to:
                return False
            raise EffectFailed(READ_MEANWHILE)
        user = revision.reading.user_id
        of_user = and_(_M.user_id == _USER, _M.memory_id == bindparam("memory_id", type_=Text))
        for removed in revision.removed:
            yield from self._remove(of_user, user_id=user, memory_id=removed)
        return True

    def _add(
        self, entries: Sequence[MemoryEntry], revision: Revision | None
    ) -> Transaction[AddedEntries]:
        new, repeated, first = list[StoredEntry](), 0, True
        if revision is not None:
            first = yield from self._revise(revision)
        for entry in entries:
            seq = (yield from self._insert(stamped(entry, self.wall))) if first else None
            if seq is not None:
                yield _WAIT(user_id=entry.user_id, seq=seq)
                new.append(StoredEntry(seq, entry.user_id, entry.text))
                continue
            rows, _ = yield _REPEATED(
                user_id=entry.user_id, text=entry.text, memory_id=entry.memory_id
            )
            repeated += bool(rows[0][0])
        return AddedEntries(new, repeated)

    def _add_imported(self, entries: Sequence[MemoryEntry]) -> Transaction[ImportedEntries]:
        result = ImportedEntries([], [])
        for number, entry in enumerate(entries):
            rows, _ = yield _TAKEN(
                user_id=entry.user_id, text=entry.text, memory_id=entry.memory_id
            )
            if rows[0][0]:
                result.taken.append(number)
            else:
                result.new.extend((yield from self._add([entry], None)).new)
        return result

    def _keep(self, stored: Sequence[StoredEntry], vectors: Vectors) -> Transaction[None]:
        for one, vector in zip(stored, vectors, strict=True):
            encoded = self._encode(vector)
            yield _KEEP_VECTOR(**one._asdict(), maker=self._maker, vector=encoded)
            yield _WAIT_NO_MORE(maker=self._maker, seq=one.seq)


def _key(reading: Reading) -> dict[str, object]:
    return {f"for_{name}": value for name, value in msgspec.structs.asdict(reading).items()}
