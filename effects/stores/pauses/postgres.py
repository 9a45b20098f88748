"""Pauses in PostgreSQL, for more than one machine."""

from __future__ import annotations

import re
import time
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING

from effects.stores.pauses.rows import Row, Values, update
from effects.stores.pauses.stored import StoredPauses
from effects.stores.postgres import PostgresPool, Steps
from effects.stores.values import STORE_CODES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from effects.stores.pauses.encryption import Encryption
    from effects.stores.postgres import Connection

STEPS: Steps = (
    (
        """CREATE TABLE graph_checkpoints (
            hitl_id text PRIMARY KEY, exchange text NOT NULL, flow text NOT NULL,
            stack text NOT NULL, created_at double precision NOT NULL,
            expires_at double precision NOT NULL, session_id text, question bytea NOT NULL,
            tape bytea NOT NULL, answer_site text NOT NULL, answer_key text NOT NULL,
            state text NOT NULL, answer bytea NOT NULL, digest text NOT NULL,
            owner text NOT NULL, leased_until double precision NOT NULL, user_id text,
            continued boolean NOT NULL
        )""",
        "CREATE INDEX pauses_of_a_session ON graph_checkpoints (session_id)",
        "CREATE INDEX pauses_by_expiry ON graph_checkpoints (expires_at)",
    ),
)


class PostgresPauses(StoredPauses):
    """Pauses in PostgreSQL; made by `PostgresPauses.open_pool(dsn)`."""

    @classmethod
    @asynccontextmanager
    async def open_pool(
        cls,
        dsn: str,
        clock: Callable[[], float] = time.time,
        sealing: Encryption | None = None,
        *,
        connections: int = 8,
        limit: float = 5.0,
    ) -> AsyncIterator[PostgresPauses]:
        """Connect and bring the table up to date; `limit` in seconds per wait and per statement.

        Raises `EffectFailed` with `store_unavailable` where no server answers, `StoreNotOpened`
        where the table is newer than the code.
        """
        async with PostgresPool.open(
            dsn, STORE_CODES, name="pauses", connections=connections, limit=limit
        ) as pool:
            await pool.migrate("pauses", STEPS)
            yield cls(PostgresTable(pool), sealing=sealing, clock=clock)


class PostgresTable:
    """The table in PostgreSQL."""

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

    @property
    def fault(self) -> str | None:
        """Why nobody waits for the server now; None where it answers."""
        return self._pool.fault

    async def write(self, statement: str, values: Values) -> int:
        """Execute one statement; returns how many rows it touched."""
        async with self._pool.connection() as connection:
            return await _write(connection, statement, values)

    async def read(self, query: str, values: Values) -> Sequence[Row]:
        """Read rows."""
        async with self._pool.connection() as connection:
            return await _read(connection, query, values)

    async def change(self, query: str, values: Values, decide: Callable[[Row], Values]) -> None:
        """Lock the rows, all in one order, then decide and write."""
        async with self._pool.transaction() as connection:
            for row in await _read(connection, f"{query} FOR UPDATE", values):
                if changes := decide(row):
                    await _write(connection, update(changes), {**changes, "hitl_id": row[0]})

    async def erase(self, deletions: Sequence[tuple[str, Values]]) -> int:
        """Delete rows; their space is free after a vacuum."""
        async with self._pool.transaction() as connection:
            return sum([await _write(connection, *deletion) for deletion in deletions])

    async def aclose(self) -> None:
        """Close the connections; idempotent."""
        await self._pool.aclose()


async def _write(connection: Connection, statement: str, values: Values) -> int:
    return (await connection.execute(_dialect(statement), values)).rowcount


async def _read(connection: Connection, query: str, values: Values) -> list[Row]:
    return await (await connection.execute(_dialect(query), values)).fetchall()


@cache
def _dialect(statement: str) -> bytes:
    """Name values as the driver does."""
    return re.sub(r":(\w+)", r"%(\1)s", statement).encode()
