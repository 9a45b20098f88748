"""Threads of the engine: where they are stored, and how they are replaced and deleted.

A thread is a copy: the conversation store is the record, and where the two differ the store wins.
So no run reads its thread; each replaces it with the messages of its turn. A store of threads that
fails or hangs costs no user an answer: the log reports it.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
    nullcontext,
)
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any, Final, Literal, TypeVar

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

from contract.errors import CutoverError, EffectFailed, Fault
from contract.flow import CallBreaker

log = logging.getLogger(__name__)

WAIT_SECONDS = 2.0
"""How long an answer waits for its thread."""
FORGET_SECONDS = 10.0
"""How long the deletion of a thread may take."""

STORED_BEFORE: Final = "extract_memory"
"""The node that ends the stream: its turn's thread is stored before it runs."""
_STORED: Final = "messages"
_BUSY_S = 1.0

T = TypeVar("T")
State = tuple[RunnableConfig, Checkpoint, CheckpointMetadata, ChannelVersions]
"""What a saver is called with to store a state."""


def thread_of(state: State) -> str:
    """Return the thread of a state."""
    return str(state[0]["configurable"]["thread_id"])


def plain_values() -> JsonPlusSerializer:
    """Return a serialiser of plain values: the default one calls whatever a state names."""
    return JsonPlusSerializer(allowed_msgpack_modules=None, allowed_json_modules=None)


class Threads(BaseCheckpointSaver[Any]):
    """Mixed into a saver: of a thread it stores the messages of the newest turn, nothing else.

    A run that breaks off stores nothing. `breaker` lets calls skip a store that hangs.
    """

    breaker: CallBreaker | None = None

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:  # noqa: ARG002 - the engine passes it by this name
        """Return no state: every run starts from what the conversation store holds."""
        return None

    async def read(self, thread: str) -> CheckpointTuple | None:
        """Read the state of a thread; raises what the store does."""
        return await super().aget_tuple({"configurable": {"thread_id": thread}})

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002 - no earlier state of the run is stored
    ) -> RunnableConfig:
        """Replace a thread once its turn's answer is whole; a failure is logged."""
        if f"branch:to:{STORED_BEFORE}" not in checkpoint["channel_values"]:
            return config
        stored = _messages_alone(checkpoint)
        replacing = self._replace(config, stored, metadata, stored["channel_versions"])
        return await self._guarded(replacing, config)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store nothing: no run continues from what its nodes wrote."""

    async def forget(self, thread: str) -> None:
        """Delete a thread; raises `EffectFailed`."""
        try:
            async with asyncio.timeout(FORGET_SECONDS):
                await self._delete(thread)
        except Exception as error:
            log.warning("a thread is not deleted: %s", type(error).__name__)
            raise EffectFailed(Fault("store_unavailable", retryable=True)) from error

    async def _replace(self, *state: *State) -> RunnableConfig:
        raise NotImplementedError

    async def _delete(self, thread: str) -> None:
        await self.adelete_thread(thread)

    async def _guarded(self, call: Coroutine[Any, Any, T], instead: T) -> T:
        """Await a call; return `instead` where it fails, takes too long or is not permitted."""
        now, breaker = asyncio.get_running_loop().time, self.breaker
        permit = breaker and breaker.permit(now())
        if breaker and permit is None:
            call.close()
            return instead
        limit = asyncio.timeout(WAIT_SECONDS)
        result: Literal["success", "failure", "ignored"] = "ignored"
        try:
            async with limit:
                stored = await call
        except Exception as error:  # noqa: BLE001 - a saver raises whatever its driver does
            log.warning("a thread is not stored: %s", type(error).__name__)
            result = "failure" if limit.expired() else "success"  # one that fails has answered
            return instead
        else:
            result = "success"
            return stored
        finally:
            if breaker:
                breaker.record(permit, result, now())


def _messages_alone(checkpoint: Checkpoint) -> Checkpoint:
    """Return the state of a run as its thread is stored: ended, with its messages alone."""
    values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
    return {
        **checkpoint,
        "channel_values": {_STORED: values[_STORED]},
        "channel_versions": {name: versions[name] for name in versions if name == _STORED},
        "versions_seen": {},
        "updated_channels": None,
    }


class MemoryThreads(Threads, InMemorySaver):
    """Threads in this process; they end with it."""

    def __init__(self) -> None:
        super().__init__(serde=plain_values())

    async def _replace(self, *state: *State) -> RunnableConfig:
        self.delete_thread(thread_of(state))
        return self.put(*state)


class SqliteThreads(Threads, SqliteSaver):
    """Threads in an SQLite file, each replaced in one transaction on the file's own thread.

    The library's asynchronous saver hops to its thread for each statement.
    """

    def __init__(self, connection: sqlite3.Connection, worker: ThreadPoolExecutor) -> None:
        super().__init__(connection, serde=plain_values())
        self._worker = worker

    async def hop(self, work: Callable[[], T]) -> T:
        """Do something with the connection, in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    async def read(self, thread: str) -> CheckpointTuple | None:
        """Read the state of a thread."""
        return await self.hop(partial(self.get_tuple, {"configurable": {"thread_id": thread}}))

    def get_next_version(self, current: int | None, channel: None) -> int:  # type: ignore[override]  # noqa: ARG002 - the engine passes it
        """Count: the library's text with a random number in it is for states of several runs."""
        return (current or 0) + 1

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:  # noqa: ARG002, FBT001, FBT002 - as the library calls it
        """Yield a cursor; roll back on an error, where the library would commit half of it."""
        with self.conn, closing(self.conn.cursor()) as cursor:
            yield cursor

    async def _replace(self, *state: *State) -> RunnableConfig:
        cancelled = Event()

        def replace() -> RunnableConfig:
            with self.conn:
                self.conn.execute("BEGIN IMMEDIATE")  # may wait for another process
                if cancelled.is_set():
                    return state[0]
                self.conn.execute(_DELETE_OLDER, (thread_of(state), state[1]["id"]))
                return self.put(*state)  # commits both

        try:
            return await self.hop(replace)
        except asyncio.CancelledError:
            cancelled.set()  # by then another process may have deleted the session
            raise

    async def _delete(self, thread: str) -> None:
        await self.hop(partial(self.delete_thread, thread))
        # Deleted text stays in the write-ahead log until a checkpoint that no reader holds up.
        truncate = partial(self.conn.execute, "PRAGMA wal_checkpoint(TRUNCATE)")
        await self.hop(lambda: truncate().fetchall())


_DELETE_OLDER = "DELETE FROM checkpoints WHERE thread_id = ? AND checkpoint_id < ?"


@asynccontextmanager
async def sqlite_threads(path: Path) -> AsyncIterator[SqliteThreads]:
    """Open the threads of a file, creating it where there is none."""
    with ThreadPoolExecutor(1, "threads") as worker:
        threads = await asyncio.get_running_loop().run_in_executor(worker, _open, path, worker)
        try:
            yield threads
        finally:
            await threads.hop(threads.conn.close)


def _open(path: Path, worker: ThreadPoolExecutor) -> SqliteThreads:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=_BUSY_S)
    try:
        connection.execute("PRAGMA secure_delete = ON")  # deleted text leaves free pages, too
        # As in the other stores: the next turn restores what a power failure takes of a copy.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA cache_size = -512")
        threads = SqliteThreads(connection, worker)
        threads.setup()
    except BaseException:
        connection.close()
        raise
    return threads


class NoSuchThreads(CutoverError):
    """An address names a place where no threads can be stored."""

    def __init__(self, scheme: str) -> None:
        super().__init__(
            f"threads cannot be stored in {scheme!r}; known are memory, sqlite and postgresql"
        )


class ThreadsNotOpened(CutoverError):
    """The store of threads is out of reach, or is something else."""

    def __init__(self, scheme: str, kind: str) -> None:
        super().__init__(
            f"the {scheme} store of threads ([stores] checkpoints) cannot be opened: {kind}"
        )


@asynccontextmanager
async def opened_threads(
    address: str, breaker: CallBreaker | None = None
) -> AsyncIterator[Threads]:
    """Open the threads at an address; raises `NoSuchThreads` or `ThreadsNotOpened`."""
    scheme, _, rest = address.partition("://")
    opening: AbstractAsyncContextManager[Threads]
    match scheme:
        case "memory":
            opening = nullcontext(MemoryThreads())
        case "sqlite":
            opening = sqlite_threads(Path(rest.removeprefix("/")))
        case "postgresql":  # its library is an extra
            opening = import_module("graph_impl.postgres_threads").postgres_threads(address)
        case _:
            raise NoSuchThreads(scheme)
    async with AsyncExitStack() as stack:
        try:
            threads = await stack.enter_async_context(opening)
        except Exception as error:
            # Its text may contain the address, and that a password.
            raise ThreadsNotOpened(scheme, type(error).__name__) from error
        threads.breaker = breaker
        yield threads
