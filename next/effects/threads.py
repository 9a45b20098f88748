"""The threads of graphs: LangGraph's stock saver, kept for Studio and for debugging.

What is said is in the conversation store, which every turn reads. A thread is a picture of it, and
must not cost anyone an answer: where its saver fails, that is logged and the run goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from cutover.graph_thread import SHADOW
from effects.database import Database

log = logging.getLogger(__name__)

SECONDS = 2.0
"""How long a call of the saver may take."""
_POOL = 4
_ATTEMPTS, _APART = 10, 0.5
_CONNECTION: dict[str, Any] = {
    "autocommit": True,
    "prepare_threshold": 0,
    "row_factory": dict_row,
}

T = TypeVar("T")


class ThreadSaver(BaseCheckpointSaver[Any]):
    """A saver behind which failures end: nothing is read or kept then, and the run goes on.

    Deleting a thread and listing checkpoints raise what the stock saver raises.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return a channel's next version, as the stock saver counts."""
        return self._saver.get_next_version(current, channel)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint of a thread; None where there is none, or it cannot be read."""
        return await _tried("read", config, self._saver.aget_tuple(config), None)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep a checkpoint and return its configuration."""
        kept = self._saver.aput(config, checkpoint, metadata, new_versions)
        return await _tried("kept", config, kept, config)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Keep what the tasks of a checkpoint have written."""
        kept = self._saver.aput_writes(config, writes, task_id, task_path)
        await _tried("kept", config, kept, None)

    def alist(self, config: RunnableConfig | None, **choice: Any) -> AsyncIterator[CheckpointTuple]:
        """Return the checkpoints of a thread, the newest first."""
        return self._saver.alist(config, **choice)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread."""
        await self._saver.adelete_thread(thread_id)

    async def forget(self, thread_id: str, *, dry_run: bool = False) -> int:
        """Delete a thread and its shadows', and return how many there were."""
        found = 0
        for one in (thread_id, SHADOW + thread_id):
            config: RunnableConfig = {"configurable": {"thread_id": one}}
            kept = [True async for _ in self._saver.alist(config, limit=1)]
            found += len(kept)
            if kept and not dry_run:
                await self._saver.adelete_thread(one)
        return found


async def _tried(what: str, config: RunnableConfig, call: Awaitable[T], otherwise: T) -> T:
    try:
        async with asyncio.timeout(SECONDS):
            return await call
    except Exception as failure:  # noqa: BLE001 - of whatever kind: no run depends on it
        thread = config.get("configurable", {}).get("thread_id")
        log.warning("thread=%s was not %s error=%r", thread, what, failure)
        return otherwise


@asynccontextmanager
async def open_threads(database: Database) -> AsyncIterator[ThreadSaver]:
    """Open the stock saver: on PostgreSQL in the database, otherwise in an SQLite file beside it.

    The file is one of its own (`cutover.threads.db` for `cutover.db`), since SQLite has one writer
    a file, and the threads must not hold up what is served.
    """
    url = database.engine.url
    if url.get_backend_name() == "postgresql":
        plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
        pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
            plain, min_size=1, max_size=_POOL, open=False, kwargs=_CONNECTION
        )
        async with pool:
            postgres = AsyncPostgresSaver(pool)
            await _set_up(postgres)
            yield ThreadSaver(postgres)
        return
    async with AsyncSqliteSaver.from_conn_string(_beside(url.database)) as sqlite:
        await sqlite.setup()
        yield ThreadSaver(sqlite)


async def _set_up(saver: AsyncPostgresSaver) -> None:
    """Create the tables; of processes that do it at the same time, all but one are refused."""
    for left in range(_ATTEMPTS, 0, -1):
        try:
            await saver.setup()
        except psycopg.Error:
            if left == 1:
                raise
            await asyncio.sleep(_APART)
        else:
            return


def _beside(path: str | None) -> str:
    if not path or path == ":memory:":
        return ":memory:"
    return f"{path.removesuffix('.db')}.threads.db"
