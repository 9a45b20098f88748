"""Threads in PostgreSQL, for several hosts; needs the extra `postgres`."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg import AsyncConnection, Error
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from graph_impl.threads import WAIT_SECONDS, Threads, plain_values

_CONNECTIONS = 8
_CONNECT_SECONDS = 5
"""For one connection, and for all attempts at one: the next call that needs it tries again."""

# One statement sees one state: the next turn's is there with its values, or not at all.
_DELETE_OLDER = """
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


class PostgresThreads(Threads, AsyncPostgresSaver):
    """Threads in a PostgreSQL database."""

    def __init__(self, pool: AsyncConnectionPool[AsyncConnection[DictRow]]) -> None:
        super().__init__(pool, serde=plain_values())
        self._pool = pool

    async def _replace(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        versions: ChannelVersions,
    ) -> RunnableConfig:
        stored = await AsyncPostgresSaver.aput(self, config, checkpoint, metadata, versions)
        async with self._pool.connection() as connection:
            thread = config["configurable"]["thread_id"]
            await connection.execute(_DELETE_OLDER, {"thread": thread})
        return stored


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
        threads = PostgresThreads(pool)
        await threads.setup()
        yield threads
