"""The database: its tables, and an engine for SQLite or PostgreSQL.

Stores write SQL with SQLAlchemy's expressions on `Database.engine`; the rows are declared here, so
that opening a database creates every table.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from sqlalchemy import (
    JSON,
    ColumnElement,
    Dialect,
    ForeignKey,
    Index,
    LargeBinary,
    Text,
    TypeDecorator,
    UniqueConstraint,
    delete,
    func,
    insert,
    select,
)
from sqlalchemy import event as listen
from sqlalchemy import text as sql
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.pool import AsyncAdaptedQueuePool
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.dml import ReturningInsert

BUSY_SECONDS = 5.0
"""How long a call waits for SQLite's write lock, or for a connection to PostgreSQL."""

_SCHEMA_LOCK = 0x6375746F766572
"""PostgreSQL's advisory lock under which one process at a time creates tables."""

_ciphers: WeakKeyDictionary[Dialect, Any] = WeakKeyDictionary()


class Words(TypeDecorator[str]):
    """Text of any origin: what PostgreSQL refuses (U+0000, lone surrogates) is replaced."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the text that the database takes."""
        del dialect  # both databases store the same
        if value is None:
            return None
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


class Sealed(TypeDecorator[bytes]):
    """Bytes under AES-GCM where the database was opened with a key, and plain otherwise."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        """Encrypt under a new nonce, which precedes the ciphertext."""
        if not value or (cipher := _ciphers.get(dialect)) is None:
            return value
        return b"".join((nonce := os.urandom(12), cipher.encrypt(nonce, value, None)))

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        """Decrypt; raises `cryptography.exceptions.InvalidTag` for another key."""
        cipher = _ciphers.get(dialect)
        return cipher.decrypt(value[:12], value[12:], None) if value and cipher else value


class Table(DeclarativeBase):
    """Root of the tables."""

    type_annotation_map: ClassVar = {str: Words, bytes: Sealed, dict[str, Any]: JSON}


class TurnRow(Table):
    """A turn of a chat; `seq` is the order in which turns were stored."""

    __tablename__ = "turns"
    __table_args__ = (UniqueConstraint("flow", "id"), Index("turns_by_chat", "flow", "chat_id"))

    seq: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str]
    flow: Mapped[str]
    chat_id: Mapped[str]
    role: Mapped[str]
    content: Mapped[str]
    name: Mapped[str | None]
    user_id: Mapped[str | None] = mapped_column(index=True)
    at: Mapped[str]
    data: Mapped[dict[str, Any]]


class AuditRow(Table):
    """A line of the audit log; nothing updates or deletes it."""

    __tablename__ = "audit"

    seq: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    session_id: Mapped[str] = mapped_column(index=True)
    who: Mapped[str]
    what: Mapped[str]
    worker: Mapped[str]
    action: Mapped[str]
    args: Mapped[dict[str, Any]]
    ok: Mapped[bool | None]
    message: Mapped[str]
    at: Mapped[str]


class PauseRow(Table):
    """A pause; its state as stored, which time alone may have moved on (`effects.pauses`)."""

    __tablename__ = "pauses"
    __table_args__ = (Index("pauses_by_session", "flow", "session"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    flow: Mapped[str]
    session: Mapped[str]
    path: Mapped[str]
    stack: Mapped[str]
    request: Mapped[bytes]
    tape: Mapped[bytes]
    question: Mapped[bytes]
    frames: Mapped[bytes]
    answer: Mapped[bytes | None]
    state: Mapped[str]
    owner: Mapped[str]
    claimed_until: Mapped[float]
    expires_at: Mapped[float] = mapped_column(index=True)


class WriteRow(Table):
    """A write of a resumed exchange; without a result its outcome is unknown."""

    __tablename__ = "pause_writes"

    pause: Mapped[str] = mapped_column(
        ForeignKey("pauses.id", ondelete="CASCADE"), primary_key=True
    )
    key: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    args: Mapped[bytes]
    result: Mapped[bytes | None]


class PinRow(Table):
    """The stack that a conversation, by its digest, stays with; `at` in seconds since the epoch."""

    __tablename__ = "pins"

    flow: Mapped[str] = mapped_column(primary_key=True)
    conversation: Mapped[str] = mapped_column(primary_key=True)
    stack: Mapped[str]
    at: Mapped[float] = mapped_column(index=True)


class MemoryRow(Table):
    """An item of the memory: its namespace with periods between the labels, its unit vector."""

    __tablename__ = "memory_items"

    namespace: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
    vector: Mapped[bytes | None] = mapped_column(LargeBinary)
    created_at: Mapped[float]
    updated_at: Mapped[float]


class FeedbackRow(Table):
    """What a user thought of an exchange, as of the last time; `at` in seconds since the epoch."""

    __tablename__ = "feedback"

    exchange_id: Mapped[str] = mapped_column(primary_key=True)
    score: Mapped[int]
    comment: Mapped[str | None]
    at: Mapped[float] = mapped_column(index=True)


@dataclass(frozen=True, slots=True)
class Database:
    """An open database; made by `Database.open`."""

    engine: AsyncEngine

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, key: str = "") -> AsyncIterator[Database]:
        """Connect, and create the tables that are missing.

        `url` begins with `sqlite+aiosqlite:` or `postgresql+psycopg:`. `key` is 16 or 32 bytes as
        base64: what pauses hold is then encrypted, which needs the package `cryptography`; set it
        before the first pause is stored. Raises SQLAlchemy's errors where the database is away.
        """
        engine = await asyncio.to_thread(_engine, make_url(url))  # it may make a folder
        if key:
            ciphers = importlib.import_module("cryptography.hazmat.primitives.ciphers.aead")
            _ciphers[engine.dialect] = ciphers.AESGCM(base64.b64decode(key))
        try:
            if engine.dialect.name == "sqlite":
                await _use_wal(engine)
            async with engine.begin() as connection:
                await _create_tables(connection)
            yield cls(engine)
        finally:
            await engine.dispose()

    @property
    def libpq_url(self) -> str:
        """The address as psycopg reads it, with its password."""
        return self.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)

    async def probe(self) -> None:
        """Write something and remove it: raises what writes raise, as on a full or locked disk."""
        one = uuid.uuid4().hex
        async with self.engine.begin() as connection:
            await connection.execute(insert(FeedbackRow).values(exchange_id=one, score=0, at=0.0))
            await connection.execute(delete(FeedbackRow).where(FeedbackRow.exchange_id == one))

    async def remove(
        self, table: type[Table], *where: ColumnElement[bool], dry_run: bool = False
    ) -> int:
        """Delete the rows of a table that `where` selects and return their number.

        A dry run counts them alone.
        """
        if dry_run:
            counted = select(func.count()).select_from(table).where(*where)
            async with self.engine.connect() as connection:
                return (await connection.execute(counted)).scalar_one()
        async with self.engine.begin() as connection:
            return (await connection.execute(delete(table).where(*where))).rowcount

    def insert(self, table: type[Table]) -> sqlite.Insert | postgresql.Insert:
        """Return an `INSERT` of the database's own dialect, which knows `ON CONFLICT`."""
        dialect = sqlite if self.engine.dialect.name == "sqlite" else postgresql
        new: sqlite.Insert | postgresql.Insert = dialect.insert(table)
        return new

    def insert_new(self, table: type[Table], **values: Any) -> ReturningInsert[Any]:
        """Return an `INSERT` whose result is one row, or none where the row's keys are taken."""
        new = self.insert(table).values(**values).on_conflict_do_nothing()
        returning: ReturningInsert[Any] = new.returning(*table.__table__.primary_key)
        return returning


def _engine(url: URL) -> AsyncEngine:
    quiet: dict[str, Any] = {"hide_parameters": True}  # what users said is in no error, and no log
    if url.get_backend_name() != "sqlite":
        timeout = {"connect_timeout": int(BUSY_SECONDS)}
        return create_async_engine(url, pool_pre_ping=True, connect_args=timeout, **quiet)
    options = quiet | {"connect_args": {"timeout": BUSY_SECONDS}}
    if url.database in {None, "", ":memory:"}:
        # One connection that transactions take in turn: on a shared one they would mix.
        options |= {"poolclass": AsyncAdaptedQueuePool, "pool_size": 1, "max_overflow": 0}
    else:
        Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
    engine = create_async_engine(url, **options)
    listen.listen(engine.sync_engine, "connect", _set_pragmas)
    return engine


def _set_pragmas(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


async def _use_wal(engine: AsyncEngine) -> None:
    """Have SQLite log ahead, so that readers do not block the writer, nor it them.

    The file remembers it. While another process switches, SQLite refuses without any waiting.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + BUSY_SECONDS
    while True:
        try:
            async with engine.connect() as connection:
                await connection.execute(sql("PRAGMA journal_mode = WAL"))
        except OperationalError as error:
            if "locked" not in str(error) or loop.time() > deadline:
                raise
            await asyncio.sleep(0.02)
        else:
            return


async def _create_tables(connection: AsyncConnection) -> None:
    """Create what is missing; processes may start at the same time."""
    if connection.dialect.name == "postgresql":
        await connection.execute(sql(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})"))
    for table in Table.metadata.sorted_tables:
        await connection.execute(CreateTable(table, if_not_exists=True))
        for index in table.indexes:
            await connection.execute(CreateIndex(index, if_not_exists=True))
