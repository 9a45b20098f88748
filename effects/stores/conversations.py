"""Conversations in a local SQLite file."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from contract.stores import Turn
from effects.stores.sqlite import SqliteFile, erasing
from effects.stores.tables import Migrations
from effects.stores.turns import COLUMNS, WHOSE, ErasedTurns, check_ids, check_turn, same

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator
    from pathlib import Path

    from effects.stores.values import DataSubject

MIGRATIONS: Migrations = (
    (
        """CREATE TABLE turns (
            seq INTEGER PRIMARY KEY, message_id TEXT NOT NULL UNIQUE, role TEXT NOT NULL,
            content TEXT NOT NULL, chat_id TEXT, user_id TEXT, user_name TEXT, reply_to TEXT
        )""",
        "CREATE INDEX turns_of_a_chat ON turns (chat_id, seq)",
        "CREATE INDEX replies ON turns (reply_to, seq) WHERE reply_to IS NOT NULL",
    ),
)
_PUT = f"INSERT INTO turns ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"  # noqa: S608 (the columns are ours)
_FIND = f"SELECT {COLUMNS} FROM turns WHERE message_id = ?"  # noqa: S608 (as above)
# A message not stored (yet) comes after everything that is.
_HISTORY = f"""
WITH until (seq) AS (
    SELECT coalesce((SELECT seq FROM turns WHERE message_id = ?2), 9223372036854775807)
)
SELECT {COLUMNS} FROM turns AS turn, until
WHERE chat_id = ?1 AND turn.seq < until.seq AND NOT EXISTS (
    SELECT 1 FROM turns AS newer
    WHERE turn.role = 'assistant' AND newer.role = 'assistant'
      AND newer.reply_to = turn.reply_to AND newer.chat_id = turn.chat_id
      AND newer.seq > turn.seq AND newer.seq < until.seq
)
ORDER BY turn.seq DESC LIMIT ?3
"""  # noqa: S608 (as above)


class SqliteConversations:
    """Turns in an SQLite file; made by `SqliteConversations.open(path)`."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    @classmethod
    @asynccontextmanager
    async def open(cls, path: str | Path) -> AsyncIterator[SqliteConversations]:
        """Open the file, making it where there is none; raises `StoreNotOpened`."""
        async with SqliteFile.open("conversations", path, MIGRATIONS) as file:
            yield cls(file)

    async def find(self, site: str, message_id: str) -> Turn | None:
        """Look a turn up by its id."""
        check_ids(message_id)
        return await self._file.run(_find, message_id)

    async def put(self, site: str, turn: Turn) -> bool:
        """Store a turn; an equal one again is fine, False when the id belongs to another."""
        check_turn(turn)
        return await self._file.run(_put, turn)

    async def history(
        self, site: str, chat_id: str, *, before: str, limit: int
    ) -> tuple[Turn, ...]:
        """Read up to `limit` turns stored before a message, oldest first."""
        check_ids(chat_id, before)
        return await self._file.run(_history, chat_id, before, limit)

    async def forget(self, whose: DataSubject) -> ErasedTurns:
        """Remove somebody's turns and the replies to them."""
        check_ids(whose.value)
        return await self._file.run(_forget, whose)

    async def aclose(self) -> None:
        """Close the file; idempotent."""
        await self._file.aclose()


def _find(connection: sqlite3.Connection, message_id: str) -> Turn | None:
    row = connection.execute(_FIND, (message_id,)).fetchone()
    return _turn(row) if row else None


def _put(connection: sqlite3.Connection, turn: Turn) -> bool:
    if connection.execute(_PUT, msgspec.structs.astuple(turn)).rowcount:
        return True
    kept = _find(connection, turn.message_id)
    return kept is not None and same(kept, turn)


def _history(
    connection: sqlite3.Connection, chat_id: str, before: str, limit: int
) -> tuple[Turn, ...]:
    rows = connection.execute(_HISTORY, (chat_id, before, max(limit, 0))).fetchall()
    return tuple(_turn(row) for row in reversed(rows))


def _forget(connection: sqlite3.Connection, whose: DataSubject) -> ErasedTurns:
    condition = WHOSE[whose.kind].replace("{}", "?1")
    find = f"SELECT seq, chat_id FROM turns WHERE {condition}"  # noqa: S608 (the condition is ours)
    with erasing(connection):
        # Found first: a condition that looks for rows sees those that are deleted no more.
        found = connection.execute(find, (whose.value,)).fetchall()
        connection.executemany("DELETE FROM turns WHERE seq = ?", ((seq,) for seq, _ in found))
    return ErasedTurns(len(found), frozenset(chat for _, chat in found if chat is not None))


def _turn(row: tuple[Any, ...]) -> Turn:
    message_id, role, content, chat_id, user_id, user_name, reply_to = row
    return Turn(
        message_id=message_id,
        role=role,
        content=content,
        chat_id=chat_id,
        user_id=user_id,
        user_name=user_name,
        reply_to=reply_to,
    )
