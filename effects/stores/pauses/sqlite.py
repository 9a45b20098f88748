"""Pauses in a local SQLite file, one row each, so that they survive a restart."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from effects.stores.pauses.rows import Row, Values, update
from effects.stores.pauses.stored import StoredPauses
from effects.stores.sqlite import SqliteFile, erasing, transaction
from effects.stores.tables import Migrations

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from effects.stores.pauses.encryption import Encryption

MIGRATIONS: Migrations = (
    (
        """CREATE TABLE graph_checkpoints (
            hitl_id TEXT PRIMARY KEY, exchange TEXT NOT NULL, flow TEXT NOT NULL,
            stack TEXT NOT NULL, created_at REAL NOT NULL, expires_at REAL NOT NULL,
            session_id TEXT, question BLOB NOT NULL, tape BLOB NOT NULL,
            answer_site TEXT NOT NULL, answer_key TEXT NOT NULL, state TEXT NOT NULL,
            answer BLOB NOT NULL, digest TEXT NOT NULL, owner TEXT NOT NULL,
            leased_until REAL NOT NULL
        )""",
        "CREATE INDEX pauses_of_a_session ON graph_checkpoints (session_id)",
        "CREATE INDEX pauses_by_expiry ON graph_checkpoints (expires_at)",
    ),
    (
        "ALTER TABLE graph_checkpoints ADD COLUMN user_id TEXT",
        "ALTER TABLE graph_checkpoints ADD COLUMN continued INTEGER NOT NULL DEFAULT 0",
    ),
)


class SqlitePauses(StoredPauses):
    """Pauses in an SQLite file; made by `SqlitePauses.open_file(path)`."""

    @classmethod
    @asynccontextmanager
    async def open_file(
        cls,
        path: str | Path,
        clock: Callable[[], float] = time.time,
        sealing: Encryption | None = None,
    ) -> AsyncIterator[SqlitePauses]:
        """Open the file, making it where there is none; raises `StoreNotOpened`."""
        async with SqliteFile.open("pauses", path, MIGRATIONS) as file:
            yield cls(SqliteTable(file), sealing=sealing, clock=clock)


class SqliteTable:
    """The table in an SQLite file."""

    fault = None

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def write(self, statement: str, values: Values) -> int:
        """Execute one statement; returns how many rows it touched."""
        return await self._file.run(_write, statement, values)

    async def read(self, query: str, values: Values) -> Sequence[Row]:
        """Read rows."""
        return await self._file.run(_read, query, values)

    async def change(self, query: str, values: Values, decide: Callable[[Row], Values]) -> None:
        """Read, decide and write while nobody else writes to the file."""
        await self._file.run(_change, query, values, decide)

    async def erase(self, deletions: Sequence[tuple[str, Values]]) -> int:
        """Delete rows, and leave nothing of them in the file."""
        return await self._file.run(_erase, deletions)

    async def aclose(self) -> None:
        """Close the file; idempotent."""
        await self._file.aclose()


def _write(connection: sqlite3.Connection, statement: str, values: Values) -> int:
    return connection.execute(statement, values).rowcount


def _read(connection: sqlite3.Connection, query: str, values: Values) -> list[Row]:
    return connection.execute(query, values).fetchall()


def _change(
    connection: sqlite3.Connection, query: str, values: Values, decide: Callable[[Row], Values]
) -> None:
    with transaction(connection):
        for row in _read(connection, query, values):
            if changes := decide(row):
                _write(connection, update(changes), {**changes, "hitl_id": row[0]})


def _erase(connection: sqlite3.Connection, deletions: Sequence[tuple[str, Values]]) -> int:
    with erasing(connection):
        return sum(_write(connection, statement, values) for statement, values in deletions)
