"""Leases in a local SQLite file: locks the processes of one host share."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from effects.codes import LOCK_CODES
from effects.migrations import Migrations
from effects.sqlite import SqliteFile

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

BUSY_MS = 1_000
"""How long to wait for another writer."""

MIGRATIONS: Migrations = (
    (
        """CREATE TABLE locks (
            key TEXT PRIMARY KEY, token TEXT NOT NULL, expires REAL NOT NULL
        ) WITHOUT ROWID""",
    ),
)
_HOLD = """
INSERT INTO locks (key, token, expires) VALUES (?1, ?2, ?3)
ON CONFLICT (key) DO UPDATE SET token = excluded.token, expires = excluded.expires
WHERE locks.token = excluded.token OR locks.expires <= ?4
"""
_LET_GO = "DELETE FROM locks WHERE key = ? AND token = ?"
_EXPIRE = "DELETE FROM locks WHERE expires <= ?"


class SqliteLeases:
    """Leases in an SQLite file; made by `SqliteLeases.open(path)`.

    They are timed by the host's wall clock: one set forward by a ttl ends them all.
    """

    def __init__(self, file: SqliteFile, wall: Callable[[], float]) -> None:
        self._file = file
        self._wall = wall

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: str | Path, wall: Callable[[], float] = time.time
    ) -> AsyncIterator[SqliteLeases]:
        """Open the file, making it where there is none; raises `StoreNotOpened`."""
        async with SqliteFile.open("locks", path, MIGRATIONS, LOCK_CODES, busy_ms=BUSY_MS) as file:
            # Left by whoever was killed; a lock that is asked for again is taken over anyway.
            await file.run(_expire, wall())
            yield cls(file, wall)

    async def hold(self, key: str, token: str, ms: int) -> bool:
        """Take a key nobody holds, or keep an own one, for so many milliseconds from now."""
        now = self._wall()
        return await self._file.run(_hold, (key, token, now + ms / 1000, now))

    async def let_go(self, key: str, token: str) -> None:
        """Give a key back, if this token holds it."""
        await self._file.run(_let_go, key, token)

    async def aclose(self) -> None:
        """Close the file; idempotent."""
        await self._file.aclose()


def _hold(connection: sqlite3.Connection, values: tuple[str, str, float, float]) -> bool:
    return connection.execute(_HOLD, values).rowcount == 1


def _let_go(connection: sqlite3.Connection, key: str, token: str) -> None:
    connection.execute(_LET_GO, (key, token))


def _expire(connection: sqlite3.Connection, now: float) -> None:
    connection.execute(_EXPIRE, (now,))
