"""Threads in PostgreSQL, for several hosts; needs the extra `postgres`."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import repeat
from typing import Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg import AsyncConnection, Connection, Error
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from graph_impl.saved_threads import IDS_AT_ONCE, CheckpointsUnreadable, OpenedSaver
from graph_impl.threads import WAIT_SECONDS, State, Threads, plain_values, thread_of

_CONNECTIONS = 8
_CONNECT_SECONDS = 5
"""For one connection, and for all attempts at one: the next call that needs it tries again."""
_MIGRATING = 5_230_918  # any number, of no other lock
_LOCK_SECONDS = 0.05


class PostgresThreads(Threads, AsyncPostgresSaver):
    """Threads in a PostgreSQL database, each replaced in one transaction."""

    def __init__(self, pool: AsyncConnectionPool[AsyncConnection[DictRow]]) -> None:
        super().__init__(pool, serde=plain_values())
        self._pool = pool

    async def _replace(self, *state: *State) -> RunnableConfig:
        async with self._pool.connection() as connection, connection.transaction():
            saver = AsyncPostgresSaver(connection, serde=self.serde)
            await saver.adelete_thread(thread_of(state))
            return await saver.aput(*state)


class ImpatientConnection(AsyncConnection[DictRow]):
    """A connection that hangs up when a statement is cancelled.

    The library would ask the server to cancel it, and wait for a silent server a second time.
    """

    async def cancel_safe(self, *, timeout: float = 30.0) -> None:  # noqa: ARG002, ASYNC109 - as the library calls it
        """Shut the line; the pool makes another."""
        with suppress(Error, OSError), socket.socket(fileno=os.dup(self.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)


@asynccontextmanager
async def postgres_threads(address: str) -> AsyncIterator[PostgresThreads]:
    """Open the threads of a database, creating its tables where there are none."""
    pool: AsyncConnectionPool[AsyncConnection[DictRow]] = AsyncConnectionPool(
        address,
        min_size=1,
        max_size=_CONNECTIONS,
        timeout=WAIT_SECONDS,
        open=False,
        connection_class=ImpatientConnection,
        # The saver requires the first three.
        kwargs={
            "autocommit": True,
            "prepare_threshold": 0,
            "row_factory": dict_row,
            "connect_timeout": _CONNECT_SECONDS,
        },
        reconnect_timeout=_CONNECT_SECONDS,
    )
    async with pool:
        async with pool.connection() as connection:
            await _make_tables(connection)
        yield PostgresThreads(pool)


async def _make_tables(connection: AsyncConnection[DictRow]) -> None:
    """Bring the tables up to date, one process after the other: routers start at once."""
    # Asked again and again: what waits in the server has a transaction open, and for its end the
    # other one waits, whose indexes are built concurrently.
    for seconds in repeat(_LOCK_SECONDS):
        if await _advisory(connection, "pg_try_advisory_lock"):
            break
        await asyncio.sleep(seconds)
    try:
        await AsyncPostgresSaver(connection).setup()
    finally:
        await _advisory(connection, "pg_advisory_unlock")


async def _advisory(connection: AsyncConnection[DictRow], function: str) -> bool:
    cursor = await connection.execute(f"SELECT {function}({_MIGRATING}) AS done".encode())
    row = await cursor.fetchone()
    return row is not None and bool(row["done"])


_PAGE: Final = (
    "SELECT DISTINCT thread_id FROM checkpoints WHERE thread_id > %s ORDER BY thread_id LIMIT %s"
)


@contextmanager
def postgres_saver(address: str) -> Iterator[OpenedSaver]:
    """Open the checkpoints of a database for reading; its tables stay as they are."""
    try:
        connection = Connection.connect(
            address,
            autocommit=True,
            prepare_threshold=0,
            row_factory=dict_row,
            connect_timeout=_CONNECT_SECONDS,
        )
    except Error as error:
        raise CheckpointsUnreadable(scheme="postgresql", reason=type(error).__name__) from error
    with connection:
        connection.execute("SET default_transaction_read_only = on")

        def page(after: str) -> Sequence[str]:
            return [row["thread_id"] for row in connection.execute(_PAGE, (after, IDS_AT_ONCE))]

        yield OpenedSaver(PostgresSaver(connection, serde=plain_values()), page, Error)
