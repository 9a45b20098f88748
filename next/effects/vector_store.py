"""LangGraph's store in one table of any SQL database, searched by cosine with NumPy."""

from __future__ import annotations

import json
import logging
import operator
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast

import numpy as np
import openai
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)
from langgraph.store.base.embed import get_text_at_path
from sqlalchemy import ColumnElement, LargeBinary, Table, delete, select
from sqlalchemy import Row as Found
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.schema import CreateTable

from effects.database import Database, Row, Words

log = logging.getLogger(__name__)

Embed = Callable[[Sequence[str]], Awaitable[list[list[float]]]]

# Prefixes are found by comparing bytes: `LIKE` ignores case on SQLite, locales do on PostgreSQL.
_bytewise = Words().with_variant(Words(collation="C"), "postgresql")


class MemoryRow(Row):
    """An item: its namespace with a period behind each label, and its vector of length 1."""

    __tablename__ = "memory_items"

    namespace: Mapped[str] = mapped_column(_bytewise, primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
    vector: Mapped[bytes | None] = mapped_column(LargeBinary)
    created_at: Mapped[float]
    updated_at: Mapped[float]


_table = cast("Table", MemoryRow.__table__)


class BadOperation(ValueError):
    """An operation has an unknown filter operator, or a label with a period."""

    def __init__(self, *, operator: str = "", labels: tuple[str, ...] = ()) -> None:
        what = f"the operator {operator!r}" if operator else f"a period in {labels!r}"
        super().__init__(f"the memory store does not support {what}")


class VectorStore(BaseStore):
    """A store in the table `memory_items`; without `embed`, searches return the newest items.

    Operations are performed in their order, by the caller's task, and a batch is one transaction.
    `fields` are the paths of a value that are embedded. A failing `embed` loses no item: it is
    stored without a vector, and such items come last in searches. Searches raise its error.
    """

    def __init__(
        self,
        database: Database,
        embed: Embed | None = None,
        *,
        fields: Sequence[str] = ("$",),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine, self._embed, self._fields = database.engine, embed, list(fields)
        self._clock = clock

    async def setup(self) -> None:
        """Create the table, where the database was opened before this module was imported."""
        async with self._engine.begin() as connection:
            await connection.execute(CreateTable(_table, if_not_exists=True))

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Raise `NotImplementedError`: stores are asynchronous here."""
        raise NotImplementedError

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations; one result each, in their order."""
        ops = list(ops)
        vectors = [await self._vector(op) for op in ops]  # before a transaction is open
        async with self._engine.begin() as connection:
            return [
                await _perform(connection, op, vector, self._clock())
                for op, vector in zip(ops, vectors, strict=True)
            ]

    async def _vector(self, op: Op) -> bytes | None:
        if self._embed is None:
            return None
        match op:
            case SearchOp(query=str(query)) if query:
                return _unit(await self._embed([query]))
            case PutOp(value=dict(value), index=index) if index is not False:
                paths = index or self._fields
                found = [text for path in paths for text in get_text_at_path(value, path)]
                try:
                    return _unit(await self._embed(["\n".join(found)])) if found else None
                except openai.OpenAIError as failure:
                    log.warning("memory stored without a vector error=%r", failure)
        return None


async def _perform(connection: AsyncConnection, op: Op, vector: bytes | None, now: float) -> Result:
    match op:
        case GetOp():
            found = await connection.execute(select(MemoryRow).where(*_is(op.namespace, op.key)))
            row = found.first()
            return None if row is None else Item(**_fields(row))
        case PutOp(value=None):
            await connection.execute(delete(MemoryRow).where(*_is(op.namespace, op.key)))
            return None
        case PutOp():
            await _put(connection, op, vector, now)
            return None
        case SearchOp():
            return await _search(connection, op, vector)
        case ListNamespacesOp():
            names = await connection.execute(select(MemoryRow.namespace).distinct())
            return _listed([_labels(name) for (name,) in names], op)


async def _put(connection: AsyncConnection, op: PutOp, vector: bytes | None, now: float) -> None:
    changed = {
        "value": json.dumps(op.value, ensure_ascii=False),
        "vector": vector,
        "updated_at": now,
    }
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    new = dialect.insert(MemoryRow).values(
        namespace=_joined(op.namespace), key=op.key, created_at=now, **changed
    )
    await connection.execute(
        new.on_conflict_do_update(index_elements=["namespace", "key"], set_=changed)
    )


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
    """Whether a value meets a filter of `SearchOp`: plain values, or operators such as `$ne`."""
    return all(
        all(_holds(value.get(field), *one) for one in wanted.items())
        if isinstance(wanted, dict) and any(key.startswith("$") for key in wanted)
        else value.get(field) == wanted
        for field, wanted in conditions.items()
    )


_ORDERS: Final = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}


def _holds(value: Any, comparison: str, wanted: Any) -> bool:
    match comparison:
        case "$eq":
            return bool(value == wanted)
        case "$ne":
            return bool(value != wanted)
        case _ if comparison in _ORDERS:
            return value is not None and _ORDERS[comparison](float(value), float(wanted))
        case _:
            raise BadOperation(operator=comparison)


def _listed(names: list[tuple[str, ...]], op: ListNamespacesOp) -> list[tuple[str, ...]]:
    conditions = op.match_conditions or ()
    found = {name[: op.max_depth] for name in names if all(_lies(name, one) for one in conditions)}
    return sorted(found)[op.offset : op.offset + op.limit]


def _lies(name: tuple[str, ...], condition: MatchCondition) -> bool:
    path = condition.path
    part = name[: len(path)] if condition.match_type == "prefix" else name[-len(path) :]
    return len(part) == len(path) and all(
        wanted in {"*", label} for label, wanted in zip(part, path, strict=True)
    )


def _joined(labels: tuple[str, ...]) -> str:
    if any("." in label for label in labels):
        raise BadOperation(labels=labels)
    return "".join(f"{label}." for label in labels)


def _labels(name: str) -> tuple[str, ...]:
    return tuple(name.split(".")[:-1])


def _is(labels: tuple[str, ...], key: str) -> list[ColumnElement[bool]]:
    return [MemoryRow.namespace == _joined(labels), MemoryRow.key == key]


def _beneath(labels: tuple[str, ...]) -> list[ColumnElement[bool]]:
    if not labels:
        return []
    prefix = _joined(labels)
    return [MemoryRow.namespace >= prefix, MemoryRow.namespace < prefix[:-1] + _BEHIND]


_BEHIND: Final = chr(ord(".") + 1)


def _fields(row: Found[Any]) -> dict[str, Any]:
    return {
        "namespace": _labels(row.namespace),
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
