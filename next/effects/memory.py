"""Long-term memory: LangGraph's store on SQLite or PostgreSQL, with or without embeddings.

Memories of a user stand under `namespace(user_id)`, as the values that `Memory.value` makes. Both
stacks use the store's own methods: `asearch(namespace(user), query=..., filter={"session_id":
{"$ne": session}}, limit=5)`, `aput`, `adelete`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import openai
import psycopg
from langgraph.store.base import BaseStore, IndexConfig, Item
from langgraph.store.postgres.aio import AsyncPostgresStore
from langgraph.store.postgres.base import PoolConfig
from sqlalchemy import text as sql

from cutover import TapedStore
from effects.database import Database
from effects.models import Models
from effects.vector_store import TEXT, VectorStore

log = logging.getLogger(__name__)

_PAGE = 1_000
_POOL: PoolConfig = {"min_size": 1, "max_size": 10}


class Memory(msgspec.Struct, frozen=True):
    """Something remembered of a user: `type` as the flow names it, `relation` who it concerns.

    `time` is when it was last written, ISO 8601 in UTC; the store sets it. `score` is the cosine
    to the query, None where memories came by age.
    """

    id: str
    text: str
    type: str = "fact"
    session_id: str = ""
    relation: str = ""
    time: str = ""
    score: float | None = None

    def value(self) -> dict[str, Any]:
        """Return what is stored; every filterable field is there, as `$ne` needs on PostgreSQL."""
        return {name: getattr(self, name) for name in _STORED}


def namespace(user_id: str) -> tuple[str, str]:
    """Return where a user's memories stand; labels may hold no period, so it is written %2E."""
    return "memories", _label(user_id)


def readings(user_id: str) -> tuple[str, str]:
    """Return where it is noted how far a user's sessions were read for memories.

    The key is the session's id, the value `{"message": ID}` of the last message that was read.
    """
    return "readings", _label(user_id)


async def items(store: BaseStore, under: tuple[str, str], **fields: str) -> list[Item]:
    """Return all items of a namespace whose values have these fields."""
    found: list[Item] = []
    while page := await store.asearch(under, filter=fields, limit=_PAGE, offset=len(found)):
        found += page
    return found


def _label(user_id: str) -> str:
    return user_id.replace("%", "%25").replace(".", "%2E")


def memories(items: Sequence[Item]) -> list[Memory]:
    """Return the memories of found items, in their order."""
    return [
        Memory(
            item.key,
            **{name: str(item.value.get(name) or default) for name, default in _STORED.items()},
            time=item.updated_at.isoformat(timespec="seconds"),
            score=getattr(item, "score", None),
        )
        for item in items
    ]


_STORED = {"text": "", "type": "fact", "session_id": "", "relation": ""}
"""What a memory is made of, by what stands for it where it is missing."""


class TooFewEmbeddings(openai.OpenAIError):
    """A provider answered with fewer embeddings than texts, or with more."""

    def __init__(self, got: int, wanted: int) -> None:
        super().__init__(f"{got} embeddings for {wanted} texts")


class Embedder:
    """Embeddings of texts by a model of the registry, behind any OpenAI-compatible endpoint.

    `dims` is the length of its vectors. The entry is looked up at each call.
    """

    def __init__(self, models: Models, model_id: str, dims: int) -> None:
        self._models, self.model_id, self.dims = models, model_id, dims

    async def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text; raises the SDK's errors."""
        entry = self._models.find(self.model_id)
        found = await self._models.openai(entry).embeddings.create(
            model=entry.name, input=list(texts), encoding_format="float"
        )
        if len(found.data) != len(texts):
            raise TooFewEmbeddings(len(found.data), len(texts))
        return [one.embedding for one in sorted(found.data, key=lambda one: one.index)]


@asynccontextmanager
async def open_memory(
    database: Database,
    embedder: Embedder | None = None,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[BaseStore]:
    """Open the store of a database, on the tape, and close it at the end.

    On PostgreSQL whose server has pgvector that is LangGraph's own store, elsewhere `VectorStore`
    in a table of `database`. Which of the two is decided by the server, never by the embedder: what
    was remembered before there was one stays where it is.
    """
    if await _has_pgvector(database):
        url = database.engine.url.set(drivername="postgresql")
        plain = url.render_as_string(hide_password=False)
        async with open_postgres(plain, embedder) as store:
            yield store
        return
    yield TapedStore(VectorStore(database, embedder, clock))


async def _has_pgvector(database: Database) -> bool:
    if database.engine.dialect.name != "postgresql":
        return False
    query = sql("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'")
    async with database.engine.connect() as connection:
        return (await connection.execute(query)).first() is not None


@asynccontextmanager
async def open_postgres(url: str, embedder: Embedder | None) -> AsyncIterator[BaseStore]:
    """Open LangGraph's PostgreSQL store, on the tape; an embedder needs pgvector there.

    Its own methods queue calls for a background task, which keeps the context of the first call;
    `TapedStore` uses its `abatch`, which is direct. Raises `psycopg.Error` where the database
    cannot be reached or set up.
    """
    index: IndexConfig | None = None
    if embedder is not None:
        index = {"dims": embedder.dims, "embed": embedder, "fields": [TEXT]}
    opened = AsyncPostgresStore.from_conn_string(url, pool_config=_POOL, index=index)  # type: ignore[arg-type] # its TypedDict adds optional keys
    async with opened as store:
        try:
            await store.setup()
        except psycopg.errors.InsufficientPrivilege:
            log.error("memory needs the extension: CREATE EXTENSION vector, as a superuser")
            raise
        try:
            yield TapedStore(store)
        finally:
            await _end(store)


async def _end(store: AsyncPostgresStore) -> None:
    queue = store._task  # noqa: SLF001 - LangGraph ends it only when the store is collected
    if queue is not None:
        queue.cancel()
        await asyncio.wait([queue])
