"""Savers that cost nobody an answer: what fails or hangs is logged, and done without."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
)
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.constants import START

from contract.errors import CutoverError, EffectFailed, Fault

log = logging.getLogger(__name__)

_BRANCH = "branch:to:"

WAIT_SECONDS = 2.0
"""How long an answer waits for its thread."""
REST_SECONDS = 30.0
"""How long nobody waits for a store again that has let somebody wait in vain."""

Kept = TypeVar("Kept")
_FAILURES = (Exception,)
_NEVER = float("-inf")


class Patience:
    """Waits for a store of threads, and lets it rest once it has not answered in time."""

    def __init__(self) -> None:
        self._rests_until = _NEVER

    async def without(self, instead: Kept, what: str, call: Coroutine[Any, Any, Kept]) -> Kept:
        """Await a call; gives `instead` where it fails, takes too long, or is not made."""
        now = asyncio.get_running_loop().time()
        if now < self._rests_until:
            call.close()
            return instead
        finding_out = self._rests_until != _NEVER
        if finding_out:
            self._rests_until = now + REST_SECONDS  # nobody waits beside this one
        limit = asyncio.timeout(WAIT_SECONDS)
        try:
            async with limit:
                return await call
        except _FAILURES as error:  # a saver raises whatever its driver does
            log.warning("a thread is not %s: %s", what, type(error).__name__)
            if limit.expired():
                self._rests_until = asyncio.get_running_loop().time() + REST_SECONDS
            return instead
        finally:
            if finding_out and not limit.expired():
                self._rests_until = _NEVER


class Steady(BaseCheckpointSaver[Any]):
    """Mixed into a saver: runs write to it, and are never kept waiting by what stands there."""

    @cached_property
    def patience(self) -> Patience:
        """With which this saver is waited for."""
        return Patience()

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:  # noqa: ARG002 - the engine passes it by this name
        """Give no state: every run begins with what the store holds, and nobody waits for it."""
        return None

    async def read(self, thread: str) -> CheckpointTuple | None:
        """Read the newest state of a thread; raises what the store does."""
        return await super().aget_tuple({"configurable": {"thread_id": thread}})

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep the last state of a run that came to its end; one that breaks off leaves none.

        It may be on its way out when the next turn, or whoever deletes the session, is at work.
        """
        if not ended(checkpoint):
            return config
        keeping = super().aput(config, checkpoint, metadata, new_versions)
        return await self.patience.without(config, "kept", keeping)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Keep nothing: what nodes wrote before a run broke off is not gone on from."""


def ended(checkpoint: Checkpoint) -> bool:
    """Whether no node is left to run from a state."""
    return not any(
        name == START or name.startswith(_BRANCH) for name in checkpoint["channel_values"]
    )


FORGET_SECONDS = 10.0
"""How long a thread may take to be forgotten."""


def plain_values() -> JsonPlusSerializer:
    """Give what reads and writes states: unless told so, it would call whatever a state names."""
    return JsonPlusSerializer(allowed_msgpack_modules=None, allowed_json_modules=None)


class Threads(ABC):
    """A saver, and what the engine does not do with it: to keep only the newest, and to forget."""

    saver: Steady

    async def tidy(self, thread: str) -> None:
        """Remove all states of a thread but the newest; what fails is done the next time."""
        await self.saver.patience.without(None, "tidied", self._tidy(thread))

    async def forget(self, thread: str) -> None:
        """Remove a thread; raises `EffectFailed`."""
        try:
            async with asyncio.timeout(FORGET_SECONDS):
                await self._forget(thread)
        except Exception as error:
            log.warning("a thread is not forgotten: %s", type(error).__name__)
            raise EffectFailed(Fault("store_unavailable", retryable=True)) from error

    @abstractmethod
    async def _tidy(self, thread: str) -> None: ...

    async def _forget(self, thread: str) -> None:
        await self.saver.adelete_thread(thread)


class _SteadyMemory(Steady, InMemorySaver):
    pass


class MemoryThreads(Threads):
    """Threads in this process; gone with it."""

    def __init__(self) -> None:
        self.saver: _SteadyMemory = _SteadyMemory(serde=plain_values())

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
async def sqlite_threads(path: Path) -> AsyncIterator[Threads]:
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


class NoSuchThreads(CutoverError):
    """An address names a place where no threads can be kept."""

    def __init__(self, scheme: str) -> None:
        super().__init__(
            f"threads cannot be kept in {scheme!r}; known are memory, sqlite and postgresql"
        )


class ThreadsNotOpened(CutoverError):
    """The place of the threads is out of reach, or is something else."""

    def __init__(self, scheme: str, kind: str) -> None:
        super().__init__(
            f"the {scheme} store of threads ([stores] checkpoints) cannot be opened: {kind}"
        )


@asynccontextmanager
async def opened_threads(address: str) -> AsyncIterator[Threads]:
    """Open the threads at an address; raises `NoSuchThreads` or `ThreadsNotOpened`."""
    scheme, _, rest = address.partition("://")
    async with AsyncExitStack() as stack:
        match scheme:
            case "memory":
                threads: Threads = MemoryThreads()
            case "sqlite":
                path = Path(rest.removeprefix("/"))
                threads = await _entered(scheme, sqlite_threads(path), stack)
            case "postgresql":
                # Its library is an extra.
                opened = import_module("graph_impl.postgres_threads").opened
                threads = await _entered(scheme, opened(address), stack)
            case _:
                raise NoSuchThreads(scheme)
        yield threads


async def _entered(
    scheme: str, opening: AbstractAsyncContextManager[Threads], stack: AsyncExitStack
) -> Threads:
    try:
        return await stack.enter_async_context(opening)
    except Exception as error:
        # Its text may hold the address, and that a password.
        raise ThreadsNotOpened(scheme, type(error).__name__) from error
