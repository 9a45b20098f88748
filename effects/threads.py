"""The threads of graphs: LangGraph's stock saver, kept for Studio and for debugging.

What is said is in the conversation store, which every turn reads; a thread is a picture of it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from cutover.graph_thread import SHADOW
from effects.database import Database

_POOL = 4
_ATTEMPTS, _APART = 10, 0.5
_CONNECTION: Any = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}


async def forget(saver: BaseCheckpointSaver[Any], thread_id: str, *, dry_run: bool = False) -> int:
    """Delete a thread and its shadows', and return how many there were."""
    found = 0
    for one in (thread_id, SHADOW + thread_id):
        config: RunnableConfig = {"configurable": {"thread_id": one}}
        if await saver.aget_tuple(config) is not None:
            found += 1
            if not dry_run:
                await saver.adelete_thread(one)
    return found


@asynccontextmanager
async def open_threads(database: Database) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """Open the stock saver: on PostgreSQL in the database, otherwise in an SQLite file beside it.

    The file is one of its own (`cutover.threads.db` for `cutover.db`), since SQLite has one writer
    a file, and the threads must not hold up what is served.
    """
    if database.engine.dialect.name == "postgresql":
        pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
            database.libpq_url, min_size=1, max_size=_POOL, open=False, kwargs=_CONNECTION
        )
        async with pool:
            postgres = AsyncPostgresSaver(pool)
            await _set_up(postgres)
            yield postgres
        return
    path = database.engine.url.database or ":memory:"
    beside = path if path == ":memory:" else f"{path.removesuffix('.db')}.threads.db"
    async with AsyncSqliteSaver.from_conn_string(beside) as sqlite:
        await sqlite.setup()
        yield sqlite


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
