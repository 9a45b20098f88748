"""LangGraph's store in one table of any SQL database, searched by cosine with NumPy.

Limits: filters are of plain values and `$ne`, and namespaces are not listed.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import openai
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)
from sqlalchemy import ColumnElement, delete, select
from sqlalchemy import Row as Found
from sqlalchemy.ext.asyncio import AsyncConnection

from effects.database import Database, MemoryRow

log = logging.getLogger(__name__)

Embed = Callable[[Sequence[str]], Awaitable[list[list[float]]]]

TEXT: Final = "text"
"""The field of a value that is embedded, unless its `index` is False."""


class BadOperation(ValueError):
    """The store does not support an operation; `what` names it."""

    def __init__(self, *, what: str) -> None:
        super().__init__(f"the memory store does not support {what}")


class VectorStore(BaseStore):
    """A store in the table `memory_items`; without `embed`, searches return the newest items.

    Operations are performed in their order, by the caller's task, and a batch is one transaction.
    A failing `embed` loses no item: it is stored without a vector, and such items come last in
    searches. Searches raise its error.
    """

    def __init__(
        self,
        database: Database,
        embed: Embed | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database, self._embed, self._clock = database, embed, clock

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Raise `NotImplementedError`: stores are asynchronous here."""
        raise NotImplementedError

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations; one result each, in their order. Raises `BadOperation`."""
        ops = list(ops)
        vectors = [await self._vector(op) for op in ops]  # before a transaction is open
        async with self._database.engine.begin() as connection:
            return [
                await self._perform(connection, op, vector)
                for op, vector in zip(ops, vectors, strict=True)
            ]

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

    async def _perform(self, connection: AsyncConnection, op: Op, vector: bytes | None) -> Result:
        match op:
            case GetOp():
                found = await connection.execute(select(MemoryRow).where(*_is(op)))
                row = found.first()
                return None if row is None else Item(**_fields(row))
            case PutOp(value=None):
                await connection.execute(delete(MemoryRow).where(*_is(op)))
            case PutOp():
                await connection.execute(self._put(op, vector))
            case SearchOp():
                return await _search(connection, op, vector)
            case ListNamespacesOp():
                raise BadOperation(what="a listing of namespaces")
        return None

    def _put(self, op: PutOp, vector: bytes | None) -> Any:
        now, value = self._clock(), json.dumps(op.value, ensure_ascii=False)
        changed = {"value": value, "vector": vector, "updated_at": now}
        keys = {"namespace": _joined(op.namespace), "key": op.key}
        new = self._database.insert(MemoryRow).values(created_at=now, **keys, **changed)
        return new.on_conflict_do_update(index_elements=[*keys], set_=changed)


async def _search(
    connection: AsyncConnection, op: SearchOp, query: bytes | None
) -> list[SearchItem]:
    newest = select(MemoryRow).order_by(MemoryRow.updated_at.desc(), MemoryRow.key)
    rows = await connection.execute(newest.where(*_beneath(op.namespace_prefix)))
    found = [SearchItem(**_fields(row), score=_cosine(row.vector, query)) for row in rows]
    found = [item for item in found if matches(item.value, op.filter or {})]
    found.sort(key=lambda item: -2.0 if item.score is None else item.score, reverse=True)
    return found[op.offset : op.offset + op.limit]


def matches(value: Mapping[str, Any], conditions: Mapping[str, Any]) -> bool:
    """Whether a value meets a filter of `SearchOp`; raises `BadOperation`."""
    return all(_holds(value.get(field), wanted) for field, wanted in conditions.items())


def _holds(value: Any, wanted: Any) -> bool:
    match wanted:
        case {"$ne": other, **more} if not more:
            return bool(value != other)
        case dict() if any(key.startswith("$") for key in wanted):
            raise BadOperation(what=f"the filter {wanted!r}")
        case _:
            return bool(value == wanted)


def _joined(labels: tuple[str, ...]) -> str:
    """Return a namespace with a period behind each label."""
    if any("." in label for label in labels):
        raise BadOperation(what=f"a period in {labels!r}")
    return "".join(f"{label}." for label in labels)


def _is(op: GetOp | PutOp) -> list[ColumnElement[bool]]:
    return [MemoryRow.namespace == _joined(op.namespace), MemoryRow.key == op.key]


def _beneath(labels: tuple[str, ...]) -> list[ColumnElement[bool]]:
    if not labels:
        return []
    prefix = _joined(labels)  # and what follows a period is a slash
    return [MemoryRow.namespace >= prefix, MemoryRow.namespace < f"{prefix[:-1]}/"]


def _fields(row: Found[Any]) -> dict[str, Any]:
    return {
        "namespace": tuple(row.namespace.split(".")[:-1]),
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
