"""Threads in an SQLite file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.sqlite import SqliteSaver

from graph_impl.steady import Steady
from graph_impl.threads import Threads, plain_values

_BUSY_S = 1.0
_OUTDATED = "DELETE FROM checkpoints WHERE thread_id = ? AND checkpoint_id < ?"

Given = TypeVar("Given")


class OneHopSaver(SqliteSaver):
    """Keeps a state in one hop to its thread, and one transaction: it takes the place of what was.

    The library's asynchronous saver hops for each statement, and the loop is woken after each.
    """

    def __init__(self, connection: sqlite3.Connection, worker: ThreadPoolExecutor) -> None:
        super().__init__(connection, serde=plain_values())
        self._worker = worker

    async def hop(self, work: Callable[[], Given]) -> Given:
        """Do something with the connection, in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep a state of a thread, and nothing older; who gives up waiting for it keeps none."""
        given_up = Event()
        put = partial(self.put, config, checkpoint, metadata, new_versions)
        try:
            return await self.hop(partial(self._replace, config, checkpoint["id"], put, given_up))
        except asyncio.CancelledError:
            given_up.set()  # by now the session may be deleted, by another process
            raise

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read the newest state of a thread."""
        return await self.hop(partial(self.get_tuple, config))

    async def adelete_thread(self, thread_id: str) -> None:
        """Remove a thread."""
        await self.hop(partial(self.delete_thread, thread_id))

    def get_next_version(self, current: int | None, channel: None) -> int:  # type: ignore[override]  # noqa: ARG002 - the engine passes it
        """Count: the library's text with a random number in it is for states of several runs."""
        return (current or 0) + 1

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:  # noqa: ARG002, FBT001, FBT002 - as the library calls it
        """Give a cursor; what breaks off is undone, where the library would commit it half done."""
        with self.conn, closing(self.conn.cursor()) as cursor:
            yield cursor

    def _replace(
        self,
        config: RunnableConfig,
        newest: str,
        put: Callable[[], RunnableConfig],
        given_up: Event,
    ) -> RunnableConfig:
        with self.conn:
            self.conn.execute("BEGIN IMMEDIATE")  # the wait, if there is one
            if given_up.is_set():
                return config
            self.conn.execute(_OUTDATED, (config["configurable"]["thread_id"], newest))
            return put()  # commits both


class _SteadySqlite(Steady, OneHopSaver):
    pass


class SqliteThreads(Threads):
    """Threads in an SQLite file."""

    def __init__(self, saver: _SteadySqlite) -> None:
        self.saver: _SteadySqlite = saver

    async def _tidy(self, thread: str) -> None:
        """Do nothing: whatever is kept takes the place of what was."""

    async def _forget(self, thread: str) -> None:
        await super()._forget(thread)
        # What was deleted is to be in the log no longer, unless somebody reads just now.
        truncate = partial(self.saver.conn.execute, "PRAGMA wal_checkpoint(TRUNCATE)")
        await self.saver.hop(lambda: truncate().fetchall())


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Threads]:
    """Open the threads of a file, making it where there is none."""
    with ThreadPoolExecutor(1, "threads") as worker:
        saver = await asyncio.get_running_loop().run_in_executor(worker, _saver, path, worker)
        try:
            yield SqliteThreads(saver)
        finally:
            await saver.hop(saver.conn.close)


def _saver(path: Path, worker: ThreadPoolExecutor) -> _SteadySqlite:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=_BUSY_S)
    try:
        # Nothing of what was said stays behind in free pages.
        connection.execute("PRAGMA secure_delete = ON")
        # As the other stores: what a power failure takes of a copy comes with the next turn.
        connection.execute("PRAGMA synchronous = NORMAL")
        saver = _SteadySqlite(connection, worker)
        saver.setup()
    except BaseException:
        connection.close()
        raise
    return saver
