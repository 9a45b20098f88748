"""Turns in SQLite: one connection, used by one thread."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS turns (
    seq INTEGER PRIMARY KEY, message_id TEXT NOT NULL UNIQUE, role TEXT NOT NULL,
    content TEXT NOT NULL, chat_id TEXT, user_id TEXT, user_name TEXT, reply_to TEXT
);
CREATE INDEX IF NOT EXISTS turns_of_a_chat ON turns (chat_id, seq);
CREATE INDEX IF NOT EXISTS replies ON turns (reply_to, seq) WHERE reply_to IS NOT NULL;
"""
_PUT = """
INSERT INTO turns (message_id, role, content, chat_id, user_id, user_name, reply_to)
VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_FIND = """
SELECT message_id, role, content, chat_id, user_id, user_name, reply_to
FROM turns WHERE message_id = ?
"""
_HISTORY = """
SELECT message_id, role, content, chat_id, user_id, user_name, reply_to
FROM turns WHERE chat_id = ? ORDER BY seq DESC LIMIT ?
"""


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One message of a conversation."""

    message_id: str
    role: str
    content: str
    chat_id: str | None = None
    user_id: str | None = None
    user_name: str | None = None
    reply_to: str | None = None


class Turns:
    """The store; close it when done."""

    def __init__(self, path: Path) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="turns")
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.executescript(_SCHEMA)

    async def put(self, turn: ChatTurn) -> bool:
        """Store a turn; False when its id belongs to another one."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._put, turn)

    async def find(self, message_id: str) -> ChatTurn | None:
        """Look a turn up."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._find, message_id
        )

    async def history(self, chat_id: str, before: str, limit: int) -> list[ChatTurn]:
        """Read the last turns of a chat, oldest first, without the message `before`."""
        turns = await asyncio.get_running_loop().run_in_executor(
            self._thread, self._history, chat_id, limit + 1
        )
        return [turn for turn in reversed(turns) if turn.message_id != before][-limit:]

    def close(self) -> None:
        """Close the file."""
        self._thread.shutdown()
        self._connection.close()

    def _put(self, turn: ChatTurn) -> bool:
        if self._connection.execute(_PUT, astuple(turn)).rowcount:
            return True
        kept = self._find(turn.message_id)
        return kept is not None and kept.content == turn.content

    def _find(self, message_id: str) -> ChatTurn | None:
        row = self._connection.execute(_FIND, (message_id,)).fetchone()
        return ChatTurn(*row) if row else None

    def _history(self, chat_id: str, limit: int) -> list[ChatTurn]:
        rows = self._connection.execute(_HISTORY, (chat_id, limit)).fetchall()
        return [ChatTurn(*row) for row in rows]
