"""Threads in PostgreSQL, for several hosts; needs the extra `postgres`."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg import AsyncConnection, Error
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from graph_impl.threads import WAIT_SECONDS, Steady, Threads, plain_values

_CONNECTIONS = 8
_CONNECT_SECONDS = 5
"""For one connection, and for all attempts at one: it is begun anew when somebody wants it."""


class _SteadyPostgres(Steady, AsyncPostgresSaver):
    pass


# One statement, one look: the next turn's state is there with its values, or not at all.
_TIDY = """
WITH newest AS (
    SELECT checkpoint_ns, max(checkpoint_id) AS checkpoint_id FROM checkpoints
    WHERE thread_id = %(thread)s GROUP BY checkpoint_ns
), outdated AS (
    DELETE FROM checkpoints AS old USING newest
    WHERE old.thread_id = %(thread)s AND old.checkpoint_ns = newest.checkpoint_ns
      AND old.checkpoint_id < newest.checkpoint_id
)
DELETE FROM checkpoint_blobs AS old USING newest JOIN checkpoints AS kept
    USING (checkpoint_ns, checkpoint_id)
WHERE kept.thread_id = %(thread)s AND old.thread_id = %(thread)s
  AND old.checkpoint_ns = kept.checkpoint_ns
  AND kept.checkpoint -> 'channel_versions' ->> old.channel IS DISTINCT FROM old.version
"""


class PostgresThreads(Threads):
    """Threads in a PostgreSQL database."""

    def __init__(self, pool: AsyncConnectionPool[AsyncConnection[DictRow]]) -> None:
        self._pool = pool
        self.saver: _SteadyPostgres = _SteadyPostgres(pool, serde=plain_values())

    async def _tidy(self, thread: str) -> None:
        async with self._pool.connection() as connection:
            await connection.execute(_TIDY, {"thread": thread})


class Impatient(AsyncConnection[DictRow]):
    """A connection that hangs up where a statement is given up.

    The library would ask the server to cancel it, and one that says nothing is waited for twice.
    """

    async def cancel_safe(self, *, timeout: float = 30.0) -> None:  # noqa: ARG002, ASYNC109 - as the library calls it
        """Shut the line; the pool makes another."""
        with suppress(Error, OSError), socket.socket(fileno=os.dup(self.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[Threads]:
    """Open the threads of a database, making its tables where there are none."""
    pool: AsyncConnectionPool[AsyncConnection[DictRow]] = AsyncConnectionPool(
        address,
        min_size=1,
        max_size=_CONNECTIONS,
        timeout=WAIT_SECONDS,
        open=False,
        connection_class=Impatient,
        # The saver asks for all three.
        kwargs={
            "autocommit": True,
            "prepare_threshold": 0,
            "row_factory": dict_row,
            "connect_timeout": _CONNECT_SECONDS,
        },
        reconnect_timeout=_CONNECT_SECONDS,
    )
    async with pool:
        threads = PostgresThreads(pool)
        await threads.saver.setup()
        yield threads
