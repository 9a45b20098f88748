"""Long-term memory: LangGraph's store on SQLite or PostgreSQL, with or without embeddings.

Memories of a user stand under `namespace(user_id)`, as the values that `Memory.value` makes. Both
stacks use the store's own methods: `asearch(namespace(user), query=..., filter={"session_id":
{"$ne": session}}, limit=5)`, `aput`, `adelete`.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import numpy as np
import openai
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)
from langgraph.store.postgres.aio import AsyncPostgresStore
from langgraph.store.postgres.base import PoolConfig
from sqlalchemy import ColumnElement, Row, delete, select
from sqlalchemy import text as sql
from sqlalchemy.ext.asyncio import AsyncConnection

from cutover import TapedStore
from effects.database import Database, MemoryRow
from effects.models import Models

log = logging.getLogger(__name__)

Embed = Callable[[Sequence[str]], Awaitable[list[list[float]]]]

TEXT: Final = "text"
"""The field of a value that is embedded, unless its `index` is False."""
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
        derived = {"id", "time", "score"}
        return {k: v for k, v in msgspec.structs.asdict(self).items() if k not in derived}


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
        msgspec.convert(
            {
                **item.value,
                "id": item.key,
                "time": item.updated_at.isoformat(timespec="seconds"),
                "score": getattr(item, "score", None),
            },
            Memory,
        )
        for item in items
    ]


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
            message = f"{len(found.data)} embeddings for {len(texts)} texts"
            raise openai.OpenAIError(message)
        return [one.embedding for one in sorted(found.data, key=lambda one: one.index)]


@asynccontextmanager
async def open_memory(
    database: Database, embedder: Embedder | None = None, clock: Callable[[], float] = time.time
) -> AsyncIterator[BaseStore]:
    """Open the store of a database, on the tape, and close it at the end.

    On PostgreSQL whose server has pgvector that is LangGraph's own store, elsewhere `VectorStore`
    in a table of `database`. Which of the two is decided by the server, never by the embedder: what
    was remembered before there was one stays where it is.
    """
    if await _has_pgvector(database):
        async with open_postgres(database.libpq_url, embedder) as store:
            yield store
    else:
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
    `TapedStore` uses its `abatch`, which is direct.
    """
    index: IndexConfig | None = None
    if embedder is not None:
        index = {"dims": embedder.dims, "embed": embedder, "fields": [TEXT]}
    opened = AsyncPostgresStore.from_conn_string(url, pool_config=_POOL, index=index)  # type: ignore[arg-type] # its TypedDict adds optional keys
    async with opened as store:
        await store.setup()
        try:
            yield TapedStore(store)
        finally:
            queue = store._task  # noqa: SLF001 - LangGraph ends it only when it is collected
            if queue is not None:
                queue.cancel()
                await asyncio.wait([queue])


class VectorStore(BaseStore):
    """A store in one table of any SQL database, searched by cosine with NumPy.

    A search is of one namespace, with none beneath it; without `embed`, it returns the newest
    items. Filters are of plain values and `$ne`, and namespaces are not listed. Operations are
    performed in their order, by the caller's task, each in a transaction. A failing `embed` loses
    no item: it is stored without a vector, and such items come last in searches. Searches raise
    its error.
    """

    def __init__(
        self, database: Database, embed: Embed | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._database, self._embed, self._clock = database, embed, clock

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Raise `NotImplementedError`: stores are asynchronous here."""
        raise NotImplementedError

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations; one result each, in their order."""
        return [await self._perform(op) for op in ops]

    async def _perform(self, op: Op) -> Result:
        vector = await self._vector(op)  # before a transaction is open
        async with self._database.engine.begin() as connection:
            match op:
                case GetOp():
                    row = (await connection.execute(select(MemoryRow).where(*_is(op)))).first()
                    return Item(**_fields(row)) if row else None
                case PutOp(value=None):
                    await connection.execute(delete(MemoryRow).where(*_is(op)))
                case PutOp():
                    await connection.execute(self._put(op, vector))
                case SearchOp():
                    return await _search(connection, op, vector)
                case ListNamespacesOp():
                    raise NotImplementedError
        return None

    async def _vector(self, op: Op) -> bytes | None:
        """Return the unit vector of what an operation looks for or stores."""
        match op:
            case SearchOp(query=str(query)) if self._embed and query:
                return _unit(await self._embed([query]))
            case PutOp(value={"text": str(text)}, index=index) if (
                self._embed and index is not False
            ):
                try:
                    return _unit(await self._embed([text]))
                except openai.OpenAIError as failure:
                    log.warning("memory stored without a vector error=%r", failure)
        return None

    def _put(self, op: PutOp, vector: bytes | None) -> Any:
        now, value = self._clock(), json.dumps(op.value, ensure_ascii=False)
        changed = {"value": value, "vector": vector, "updated_at": now}
        keys = {"namespace": ".".join(op.namespace), "key": op.key}
        new = self._database.insert(MemoryRow).values(created_at=now, **keys, **changed)
        return new.on_conflict_do_update(index_elements=[*keys], set_=changed)


async def _search(
    connection: AsyncConnection, op: SearchOp, query: bytes | None
) -> list[SearchItem]:
    newest = select(MemoryRow).order_by(MemoryRow.updated_at.desc(), MemoryRow.key)
    rows = await connection.execute(newest.where(_within(op.namespace_prefix)))
    found = [SearchItem(**_fields(row), score=_cosine(row.vector, query)) for row in rows]
    found = [item for item in found if matches(item.value, op.filter or {})]
    found.sort(key=lambda item: -2.0 if item.score is None else item.score, reverse=True)
    return found[op.offset : op.offset + op.limit]


def matches(value: Mapping[str, Any], conditions: Mapping[str, Any]) -> bool:
    """Whether a value meets a filter of `SearchOp`; raises `NotImplementedError`."""
    return all(_holds(value.get(field), wanted) for field, wanted in conditions.items())


def _holds(value: Any, wanted: Any) -> bool:
    match wanted:
        case {"$ne": other}:
            return bool(value != other)
        case dict() if any(key.startswith("$") for key in wanted):
            raise NotImplementedError(wanted)
        case _:
            return bool(value == wanted)


def _within(labels: tuple[str, ...]) -> ColumnElement[bool]:
    return MemoryRow.namespace == ".".join(labels)


def _is(op: GetOp | PutOp) -> list[ColumnElement[bool]]:
    return [_within(op.namespace), MemoryRow.key == op.key]


def _fields(row: Row[Any]) -> dict[str, Any]:
    return {
        "namespace": tuple(row.namespace.split(".")),
        "key": row.key,
        "value": json.loads(row.value),
        "created_at": datetime.fromtimestamp(row.created_at, UTC),
        "updated_at": datetime.fromtimestamp(row.updated_at, UTC),
    }


def _unit(vectors: list[list[float]]) -> bytes:
    vector = np.asarray(vectors[0], np.float32)
    return (vector / (float(np.linalg.norm(vector)) or 1.0)).astype(np.float32).tobytes()


def _cosine(vector: bytes | None, query: bytes | None) -> float | None:
    """Return the cosine of two unit vectors; None without one, or of unlike lengths."""
    if vector is None or query is None or len(vector) != len(query):
        return None
    return float(np.frombuffer(vector, np.float32) @ np.frombuffer(query, np.float32))
