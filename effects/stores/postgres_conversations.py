"""Conversations in PostgreSQL, for more than one machine."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, LiteralString

import msgspec

from contract.stores import Turn
from effects.stores.postgres import PostgresPool
from effects.stores.turns import COLUMNS, WHOSE, ErasedTurns, check_ids, check_turn, same
from effects.stores.values import STORE_CODES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from effects.stores.values import DataSubject

STEPS = (
    (
        """CREATE TABLE turns (
            seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, message_id text NOT NULL UNIQUE,
            role text NOT NULL, content text NOT NULL, chat_id text, user_id text, user_name text,
            reply_to text
        )""",
        "CREATE INDEX turns_of_a_chat ON turns (chat_id, seq)",
        "CREATE INDEX replies ON turns (reply_to, seq) WHERE reply_to IS NOT NULL",
    ),
)
_PUT = (
    f"INSERT INTO turns ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s) "  # noqa: S608 (the columns are ours)
    "ON CONFLICT (message_id) DO NOTHING"
)
_FIND = f"SELECT {COLUMNS} FROM turns WHERE message_id = %s"  # noqa: S608 (as above)
# A message not stored (yet) comes after everything that is.
_HISTORY = f"""
WITH until (seq) AS (
    SELECT coalesce((SELECT seq FROM turns WHERE message_id = %s), 9223372036854775807)
)
SELECT {COLUMNS} FROM turns AS turn, until
WHERE chat_id = %s AND turn.seq < until.seq AND NOT EXISTS (
    SELECT 1 FROM turns AS newer
    WHERE turn.role = 'assistant' AND newer.role = 'assistant'
      AND newer.reply_to = turn.reply_to AND newer.chat_id = turn.chat_id
      AND newer.seq > turn.seq AND newer.seq < until.seq
)
ORDER BY turn.seq DESC LIMIT %s
"""  # noqa: S608 (as above)


class PostgresConversations:
    """Turns in PostgreSQL; made by `PostgresConversations.open(dsn)`."""

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

    @classmethod
    @asynccontextmanager
    async def open(
        cls, dsn: str, *, connections: int = 8, limit: float = 5.0
    ) -> AsyncIterator[PostgresConversations]:
        """Connect and bring the tables up to date; `limit` in seconds per wait and per statement.

        Raises `EffectFailed` with `store_unavailable` where no server answers, `StoreNotOpened`
        where the tables are newer than the code.
        """
        async with PostgresPool.open(
            dsn, STORE_CODES, name="conversations", connections=connections, limit=limit
        ) as pool:
            await pool.migrate("conversations", STEPS)
            yield cls(pool)

    @property
    def fault(self) -> str | None:
        """Why nobody waits for the server now; None where it answers."""
        return self._pool.fault

    async def find(self, site: str, message_id: str) -> Turn | None:
        """Look a turn up by its id."""
        check_ids(message_id)
        turns = await self._turns(_FIND, (message_id,))
        return turns[0] if turns else None

    async def put(self, site: str, turn: Turn) -> bool:
        """Store a turn; an equal one again is fine, False when the id belongs to another."""
        check_turn(turn)
        async with self._pool.connection() as connection:
            done = await connection.execute(_PUT, msgspec.structs.astuple(turn))
        if done.rowcount:
            return True
        kept = await self.find(site, turn.message_id)
        return kept is not None and same(kept, turn)

    async def history(
        self, site: str, chat_id: str, *, before: str, limit: int
    ) -> tuple[Turn, ...]:
        """Read up to `limit` turns stored before a message, oldest first."""
        check_ids(chat_id, before)
        turns = await self._turns(_HISTORY, (before, chat_id, max(limit, 0)))
        return tuple(reversed(turns))

    async def forget(self, whose: DataSubject) -> ErasedTurns:
        """Remove somebody's turns and the replies to them; the space is free after a vacuum."""
        check_ids(whose.value)
        condition = WHOSE[whose.kind].replace("{}", "%(value)s")
        query = f"DELETE FROM turns WHERE {condition} RETURNING chat_id"  # noqa: S608 (ours)
        async with self._pool.connection() as connection:
            done = await connection.execute(query, {"value": whose.value})
            chats = [chat for (chat,) in await done.fetchall()]
        return ErasedTurns(len(chats), frozenset(chat for chat in chats if chat is not None))

    async def aclose(self) -> None:
        """Close the connections; idempotent."""
        await self._pool.aclose()

    async def _turns(self, query: LiteralString, values: tuple[str | int, ...]) -> list[Turn]:
        return await self._pool.read(Turn, query, values)
