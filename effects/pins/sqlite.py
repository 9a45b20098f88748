"""Pins in a local SQLite file: several routers on one host share them."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from effects.migrations import Migrations
from effects.pins.store import Pin, pin_key
from effects.sqlite import SqliteFile, transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

BUSY_MS = 50
"""How long to wait for another writer: nobody waits longer for a pin."""

MIGRATIONS: Migrations = (
    (
        """CREATE TABLE pins (
            key TEXT PRIMARY KEY, stack TEXT NOT NULL, version TEXT NOT NULL,
            since INTEGER NOT NULL, expires REAL NOT NULL
        ) WITHOUT ROWID""",
        "CREATE INDEX pins_by_end ON pins (expires)",
    ),
)
_EXPIRE = "DELETE FROM pins WHERE expires <= ?"
_HOLD = """
INSERT INTO pins (key, stack, version, since, expires) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET expires = excluded.expires
RETURNING stack, version, since
"""


class SqlitePins:
    """Pins in an SQLite file; made by `SqlitePins.open(path)`."""

    def __init__(self, file: SqliteFile, wall: Callable[[], float]) -> None:
        self._file = file
        self._wall = wall

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: str | Path, wall: Callable[[], float] = time.time
    ) -> AsyncIterator[SqlitePins]:
        """Open the file, making it where there is none; raises `StoreNotOpened`."""
        async with SqliteFile.open("pins", path, MIGRATIONS, busy_ms=BUSY_MS) as file:
            # What ended while nobody was here may be much: not in the way of a request.
            await file.run(_expire, wall())
            yield cls(file, wall)

    async def hold(self, flow: str, conversation: str, pin: Pin, seconds: float) -> Pin:
        """Give the pin of a conversation, `pin` where it has none; kept for so many seconds."""
        key = pin_key(flow, conversation)
        return await self._file.run(_hold, key, pin, self._wall(), seconds)

    async def aclose(self) -> None:
        """Close the file; idempotent."""
        await self._file.aclose()


def _expire(connection: sqlite3.Connection, now: float) -> None:
    connection.execute(_EXPIRE, (now,))


def _hold(connection: sqlite3.Connection, key: str, pin: Pin, now: float, seconds: float) -> Pin:
    with transaction(connection):
        _expire(connection, now)
        values = (key, pin.stack, pin.version, pin.since, now + seconds)
        stack, version, since = connection.execute(_HOLD, values).fetchone()
    return Pin(stack, version, since)
