"""Where the engine keeps its threads: in this process, in an SQLite file, or in PostgreSQL.

A thread is a copy: the conversation store is the record, and where the two differ the store wins.
So a store of threads that fails, or takes too long, costs nobody an answer: it is said in the log.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from contract.errors import CutoverError

log = logging.getLogger(__name__)

WAIT_SECONDS = 2.0
"""How long an answer waits for its thread."""
_BUSY_MS = 1_000

Kept = TypeVar("Kept")
_FAILURES = (Exception,)


class NoSuchThreads(CutoverError):
    """An address names a place where no threads can be kept."""

    def __init__(self, scheme: str) -> None:
        super().__init__(
            f"threads cannot be kept in {scheme!r}; known are memory, sqlite and postgresql"
        )


class Steady(BaseCheckpointSaver[Any]):
    """Mixed into a saver: what fails or takes too long is logged, and done without."""

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read the newest state of a thread; None where it cannot be read."""
        return await _without(None, "read", super().aget_tuple(config))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep a state."""
        keeping = super().aput(config, checkpoint, metadata, new_versions)
        return await _without(config, "kept", keeping)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Keep what a node wrote before the run broke off."""
        await _without(None, "kept", super().aput_writes(config, writes, task_id, task_path))


async def _without(instead: Kept, what: str, call: Awaitable[Kept]) -> Kept:
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            return await call
    except _FAILURES as error:  # a saver raises whatever its driver does
        log.warning("a thread is not %s: %s", what, type(error).__name__)
        return instead


class Threads(ABC):
    """A saver, and what the engine does not do with it: to keep only the newest, and to forget."""

    saver: BaseCheckpointSaver[Any]

    async def tidy(self, thread: str) -> None:
        """Remove all states of a thread but the newest; what fails is done the next time."""
        await _without(None, "tidied", self._tidy(thread))

    async def forget(self, thread: str) -> None:
        """Remove a thread; raises what the store does."""
        await self.saver.adelete_thread(thread)

    @abstractmethod
    async def _tidy(self, thread: str) -> None: ...


class _SteadyMemory(Steady, InMemorySaver):
    pass


class _SteadySqlite(Steady, AsyncSqliteSaver):
    pass


class MemoryThreads(Threads):
    """Threads in this process; gone with it."""

    def __init__(self) -> None:
        self.saver: InMemorySaver = _SteadyMemory()

    async def _tidy(self, thread: str) -> None:
        for space, states in self.saver.storage.get(thread, {}).items():
            newest = max(states, default=None)
            if newest is None:
                continue
            for old in [one for one in states if one != newest]:
                del states[old]
                self.saver.writes.pop((thread, space, old), None)
            checkpoint = self.saver.serde.loads_typed(states[newest][0])
            versions = checkpoint["channel_versions"].items()
            for key in [key for key in self.saver.blobs if key[:2] == (thread, space)]:
                if key[2:] not in versions:
                    del self.saver.blobs[key]


class SqliteThreads(Threads):
    """Threads in an SQLite file."""

    _STATES = """DELETE FROM checkpoints WHERE thread_id = ?1 AND checkpoint_id < (
        SELECT max(checkpoint_id) FROM checkpoints AS newer
        WHERE newer.thread_id = ?1 AND newer.checkpoint_ns = checkpoints.checkpoint_ns)"""
    _WRITES = """DELETE FROM writes WHERE thread_id = ?1 AND checkpoint_id NOT IN (
        SELECT checkpoint_id FROM checkpoints WHERE thread_id = ?1)"""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self.saver: AsyncSqliteSaver = _SteadySqlite(connection)

    async def _tidy(self, thread: str) -> None:
        async with self.saver.lock:
            for statement in (self._STATES, self._WRITES):
                await self.saver.conn.execute(statement, (thread,))
            await self.saver.conn.commit()


@asynccontextmanager
async def opened_threads(address: str) -> AsyncIterator[Threads]:
    """Open the threads at an address; raises `NoSuchThreads`, and what the driver does."""
    scheme, _, rest = address.partition("://")
    match scheme:
        case "memory":
            yield MemoryThreads()
        case "sqlite":
            path = Path(rest.removeprefix("/"))
            path.parent.mkdir(parents=True, exist_ok=True)
            async with aiosqlite.connect(path) as connection:
                await connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
                threads = SqliteThreads(connection)
                await threads.saver.setup()
                yield threads
        case "postgresql":
            # Its library is an extra.
            opened = import_module("graph_impl.postgres_threads").opened
            async with opened(address) as kept:
                yield kept
        case _:
            raise NoSuchThreads(scheme)
