"""The database of a store, wherever it is: SQLite or PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

from effects.stores.sqlite import BUSY_MS, SqliteDatabase
from effects.stores.tables import STORE_CODES, FaultCodes, Schema

if TYPE_CHECKING:
    from effects.stores.postgres import PostgresDatabase

Database: TypeAlias = "SqliteDatabase | PostgresDatabase"
"""Executes statements and transactions; every method raises `EffectFailed`."""


@asynccontextmanager
async def open_database(
    place: str | Path,
    schema: Schema,
    codes: FaultCodes = STORE_CODES,
    *,
    busy_ms: int = BUSY_MS,
) -> AsyncIterator[Database]:
    """Open an SQLite file (a path or `sqlite:///` address) or a server (`postgresql://`).

    The schema's tables are brought up to date. `busy_ms` is what a call to a file waits in all.
    Raises `StoreNotOpened`, and for a server that does not answer `EffectFailed`.
    """
    opened: AbstractAsyncContextManager[Database]
    if str(place).partition("://")[0] == "postgresql":
        adapter = import_module("effects.stores.postgres").PostgresDatabase  # an extra
        opened = adapter.open(place, schema, codes)
    else:
        opened = SqliteDatabase.open(place, schema, codes, busy_ms=busy_ms)
    async with opened as database:
        yield database


class DatabaseStore:
    """A store in a database, which it closes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def fault(self) -> str | None:
        """Why the database is not called now; None while it answers."""
        return self._database.fault

    async def aclose(self) -> None:
        """Close the database; idempotent."""
        await self._database.aclose()


class SqlStore(DatabaseStore):
    """A store with a schema of its own; made by `open(place)`."""

    schema: ClassVar[Schema]
    codes: ClassVar[FaultCodes] = STORE_CODES
    busy_ms: ClassVar[int] = BUSY_MS

    def __init__(self, database: Database, wall: Callable[[], float] = time.time) -> None:
        super().__init__(database)
        self._wall = wall

    @classmethod
    @asynccontextmanager
    async def open(
        cls, place: str | Path, wall: Callable[[], float] = time.time
    ) -> AsyncIterator[Self]:
        """Open the database, as `open_database` does; `wall` returns seconds since the epoch."""
        async with open_database(place, cls.schema, cls.codes, busy_ms=cls.busy_ms) as database:
            store = cls(database, wall)
            await store._expire()
            yield store

    async def _expire(self) -> None:
        """Remove what has expired while the store was closed."""
