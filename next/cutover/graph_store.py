"""LangGraph's store on the tape."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

import msgspec
from langgraph.store.base import (
    BaseStore,
    GetOp,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from cutover.tape.effect import effect


class _Stored(msgspec.Struct, frozen=True):
    """An item of a store, as it stands on the tape."""

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    score: float | None = None


class TapedStore(BaseStore):
    """LangGraph's store on the tape: each operation is an effect; puts and deletions are writes.

        graph = builder.compile(store=TapedStore(InMemoryStore()))

    `wrap_graph` does it for the graph's own store. Outside a run it is the store. In a run, values
    come back as JSON does: dates as text, tuples as lists.
    """

    def __init__(self, store: BaseStore) -> None:
        self._store = store
        self.supports_ttl = store.supports_ttl

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations in order; see `BaseStore.abatch`."""
        return [await self._one(op) for op in ops]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations in order, from a thread; see `BaseStore.batch`."""
        return [self._one_blocking(op) for op in ops]

    async def _one(self, op: Op) -> Result:
        match op:
            case GetOp():
                return _item(await self._get(op.namespace, op.key, op.refresh_ttl))
            case SearchOp():
                return [_found(one) for one in await self._search(*op)]
            case PutOp():
                await self._put(op.namespace, op.key, _plain(op.value), op.index, op.ttl)
                return None
            case ListNamespacesOp():
                conditions = [(c.match_type, c.path) for c in op.match_conditions or ()]
                return await self._list(conditions, op.max_depth, op.limit, op.offset)

    def _one_blocking(self, op: Op) -> Result:
        match op:
            case GetOp():
                return _item(self._get_blocking(op.namespace, op.key, op.refresh_ttl))
            case SearchOp():
                return [_found(one) for one in self._search_blocking(*op)]
            case PutOp():
                self._put_blocking(op.namespace, op.key, _plain(op.value), op.index, op.ttl)
                return None
            case ListNamespacesOp():
                conditions = [(c.match_type, c.path) for c in op.match_conditions or ()]
                return self._list_blocking(conditions, op.max_depth, op.limit, op.offset)

    @effect("store.get", ignore=("self", "refresh_ttl"))
    async def _get(self, namespace: tuple[str, ...], key: str, refresh_ttl: bool) -> _Stored | None:  # noqa: FBT001 - as the operation has it
        [item] = await self._store.abatch([GetOp(namespace, key, refresh_ttl)])
        return _stored(item)

    @effect("store.get", ignore=("self", "refresh_ttl"))
    def _get_blocking(
        self,
        namespace: tuple[str, ...],
        key: str,
        refresh_ttl: bool,  # noqa: FBT001 - as the operation has it
    ) -> _Stored | None:
        [item] = self._store.batch([GetOp(namespace, key, refresh_ttl)])
        return _stored(item)

    @effect("store.search", ignore=("self", "refresh_ttl"))
    async def _search(
        self,
        namespace: tuple[str, ...],
        filter: dict[str, Any] | None,  # noqa: A002 - as the operation calls it
        limit: int,
        offset: int,
        query: str | None,
        refresh_ttl: bool,  # noqa: FBT001 - as the operation has it
    ) -> list[_Stored]:
        found = SearchOp(namespace, filter, limit, offset, query, refresh_ttl)
        [items] = await self._store.abatch([found])
        return _all_stored(items)

    @effect("store.search", ignore=("self", "refresh_ttl"))
    def _search_blocking(
        self,
        namespace: tuple[str, ...],
        filter: dict[str, Any] | None,  # noqa: A002 - as the operation calls it
        limit: int,
        offset: int,
        query: str | None,
        refresh_ttl: bool,  # noqa: FBT001 - as the operation has it
    ) -> list[_Stored]:
        found = SearchOp(namespace, filter, limit, offset, query, refresh_ttl)
        [items] = self._store.batch([found])
        return _all_stored(items)

    @effect("store.put", writes=True)
    async def _put(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: dict[str, Any] | None,
        index: list[str] | Literal[False] | None,
        ttl: float | None,
    ) -> None:
        await self._store.abatch([PutOp(namespace, key, value, index, ttl)])

    @effect("store.put", writes=True)
    def _put_blocking(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: dict[str, Any] | None,
        index: list[str] | Literal[False] | None,
        ttl: float | None,
    ) -> None:
        self._store.batch([PutOp(namespace, key, value, index, ttl)])

    @effect("store.list")
    async def _list(
        self,
        conditions: list[tuple[Any, Any]],
        max_depth: int | None,
        limit: int,
        offset: int,
    ) -> list[tuple[str, ...]]:
        [names] = await self._store.abatch([_listing(conditions, max_depth, limit, offset)])
        return names  # type: ignore[return-value]  # what this operation returns

    @effect("store.list")
    def _list_blocking(
        self,
        conditions: list[tuple[Any, Any]],
        max_depth: int | None,
        limit: int,
        offset: int,
    ) -> list[tuple[str, ...]]:
        [names] = self._store.batch([_listing(conditions, max_depth, limit, offset)])
        return names  # type: ignore[return-value]  # what this operation returns


def _listing(
    conditions: list[tuple[Any, Any]], max_depth: int | None, limit: int, offset: int
) -> ListNamespacesOp:
    matches = tuple(MatchCondition(kind, tuple(path)) for kind, path in conditions)
    return ListNamespacesOp(matches or None, max_depth, limit, offset)


def _plain(value: Any) -> dict[str, Any] | None:
    return None if value is None else dict(value)


def _stored(item: Any) -> _Stored | None:
    if item is None:
        return None
    score = getattr(item, "score", None)
    created, updated = item.created_at, item.updated_at
    return _Stored(item.namespace, item.key, item.value, created, updated, score)


def _all_stored(items: Any) -> list[_Stored]:
    return [one for one in map(_stored, items) if one is not None]


def _found(one: _Stored) -> SearchItem:
    return SearchItem(one.namespace, one.key, one.value, one.created_at, one.updated_at, one.score)


def _item(one: _Stored | None) -> SearchItem | None:
    return None if one is None else _found(one)
