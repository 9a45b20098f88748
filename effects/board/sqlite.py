"""A board in a local SQLite file: several routers on one host share it."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from effects.board.store import KEEP_SECONDS, SPENT_SECONDS, Note, Post, Spent, takes_place
from effects.migrations import Migrations
from effects.sqlite import SqliteFile, transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

BUSY_MS = 500
"""How long to wait for another writer: nobody is kept waiting for the board."""

_DAY_SECONDS = 86_400
MIGRATIONS: Migrations = (
    (
        """CREATE TABLE board_notes (
            key TEXT PRIMARY KEY, mark TEXT NOT NULL, phase TEXT NOT NULL,
            until REAL NOT NULL, well INTEGER NOT NULL
        ) WITHOUT ROWID""",
        """CREATE TABLE board_spent (
            day INTEGER NOT NULL, who TEXT NOT NULL, tokens INTEGER NOT NULL, cost REAL NOT NULL,
            PRIMARY KEY (day, who)
        ) WITHOUT ROWID""",
    ),
)
_FORGET = "DELETE FROM board_notes WHERE until <= ?"
_HELD = "SELECT mark FROM board_notes WHERE key = ?"
_PUT = "INSERT OR REPLACE INTO board_notes (key, mark, phase, until, well) VALUES (?, ?, ?, ?, ?)"
_ALL = "SELECT key, mark, phase, until, well FROM board_notes WHERE until > ?"
_OWN = "SELECT tokens, cost FROM board_spent WHERE day = ? AND who = ?"
_OLD_DAYS = "DELETE FROM board_spent WHERE day < ?"
_SPEND = "INSERT OR REPLACE INTO board_spent (day, who, tokens, cost) VALUES (?, ?, ?, ?)"
_SUM = "SELECT coalesce(sum(tokens), 0), coalesce(sum(cost), 0.0) FROM board_spent WHERE day = ?"


class SqliteBoard:
    """A board in an SQLite file; made by `SqliteBoard.open(path)`. It writes only what is new."""

    def __init__(self, file: SqliteFile, wall: Callable[[], float]) -> None:
        self._file = file
        self._wall = wall

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: str | Path, wall: Callable[[], float] = time.time
    ) -> AsyncIterator[SqliteBoard]:
        """Open the file, making it where there is none; raises `StoreNotOpened`."""
        async with SqliteFile.open("board", path, MIGRATIONS, busy_ms=BUSY_MS) as file:
            yield cls(file, wall)

    async def post(self, posts: Sequence[Post]) -> Mapping[str, Note]:
        """Put up those notes whose place is as expected; gives all that are up then."""
        return await self._file.run(_post, posts, self._wall())

    async def spend(self, day: int, who: str, own: Spent) -> Spent:
        """Say what one has spent in a day, all told; gives what all have."""
        return await self._file.run(_spend, day, who, own)

    async def aclose(self) -> None:
        """Close the file; idempotent."""
        await self._file.aclose()


def _post(connection: sqlite3.Connection, posts: Sequence[Post], now: float) -> dict[str, Note]:
    if posts:
        with transaction(connection):
            connection.execute(_FORGET, (now - KEEP_SECONDS,))
            for post in posts:
                _put(connection, post, now)
    rows = connection.execute(_ALL, (now - KEEP_SECONDS,))
    return {
        key: Note(mark, phase, max(until - now, 0.0), well)
        for key, mark, phase, until, well in rows
    }


def _put(connection: sqlite3.Connection, post: Post, now: float) -> None:
    held = connection.execute(_HELD, (post.key,)).fetchone()
    if takes_place(post, held[0] if held else ""):
        note = post.note
        values = (post.key, note.mark, note.phase, now + note.left, note.well)
        connection.execute(_PUT, values)


def _spend(connection: sqlite3.Connection, day: int, who: str, own: Spent) -> Spent:
    if connection.execute(_OWN, (day, who)).fetchone() != (own.tokens, own.cost):
        with transaction(connection):
            connection.execute(_OLD_DAYS, (day - SPENT_SECONDS // _DAY_SECONDS,))
            connection.execute(_SPEND, (day, who, own.tokens, own.cost))
    return Spent(*connection.execute(_SUM, (day,)).fetchone())
