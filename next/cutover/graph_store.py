"""LangGraph's store on the tape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import wraps
from typing import Any, Literal, NamedTuple

import msgspec
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

from cutover.tape.effect import effect


class _Stored(msgspec.Struct, frozen=True):
    """An item of a store, as it stands on the tape."""

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    score: float | None = None


class _Effects(NamedTuple):
    """The effects of an operation, for coroutines and for threads."""

    awaited: Callable[..., Any]
    blocking: Callable[..., Any]


def _operation(
    name: str, kept: Any, *, writes: bool = False
) -> Callable[[Callable[..., Op]], _Effects]:
    """Make the effects of a method that returns an operation; the tape has its result as `kept`."""
    taped = effect(name, writes=writes, ignore=("self", "refresh_ttl"))

    def decorate(method: Callable[..., Op]) -> _Effects:
        @wraps(method)
        async def awaited(self: TapedStore, *args: Any) -> Any:
            [result] = await self.store.abatch([method(self, *args)])
            return _stored(result)

        @wraps(method)
        def blocking(self: TapedStore, *args: Any) -> Any:
            [result] = self.store.batch([method(self, *args)])
            return _stored(result)

        for one in (awaited, blocking):
            one.__annotations__ = {**method.__annotations__, "return": kept}
        return _Effects(taped(awaited), taped(blocking))

    return decorate


class TapedStore(BaseStore):
    """LangGraph's store on the tape: each operation is an effect; puts and deletions are writes.

        graph = builder.compile(store=TapedStore(InMemoryStore()))

    `wrap_graph` does it for the graph's own store. Outside a run it is the store. In a run, values
    come back as JSON does: dates as text, tuples as lists.
    """

    def __init__(self, store: BaseStore) -> None:
        self.store = store
        self.supports_ttl = store.supports_ttl

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations in order; see `BaseStore.abatch`."""
        calls = map(self._call, ops)
        return [_result(await effects.awaited(self, *args)) for effects, args in calls]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations in order, from a thread; see `BaseStore.batch`."""
        calls = map(self._call, ops)
        return [_result(effects.blocking(self, *args)) for effects, args in calls]

    def _call(self, op: Op) -> tuple[_Effects, tuple[Any, ...]]:
        """Return the effects of an operation, and its fields as JSON."""
        match op:
            case GetOp():
                return self._get, op
            case SearchOp():
                return self._search, op
            case PutOp():
                return self._put, op._replace(value=None if op.value is None else dict(op.value))
            case ListNamespacesOp():
                conditions = [(c.match_type, c.path) for c in op.match_conditions or ()]
                return self._list, (conditions, *op[1:])

    @_operation("store.get", _Stored | None)
    def _get(self, namespace: tuple[str, ...], key: str, refresh_ttl: bool) -> Op:  # noqa: FBT001 - as the operation has it
        return GetOp(namespace, key, refresh_ttl)

    @_operation("store.search", list[_Stored])
    def _search(
        self,
        namespace: tuple[str, ...],
        filter: dict[str, Any] | None,  # noqa: A002 - as the operation calls it
        limit: int,
        offset: int,
        query: str | None,
        refresh_ttl: bool,  # noqa: FBT001 - as the operation has it
    ) -> Op:
        return SearchOp(namespace, filter, limit, offset, query, refresh_ttl)

    @_operation("store.put", None, writes=True)
    def _put(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: dict[str, Any] | None,
        index: list[str] | Literal[False] | None,
        ttl: float | None,
    ) -> Op:
        return PutOp(namespace, key, value, index, ttl)

    @_operation("store.list", list[tuple[str, ...]])
    def _list(
        self, conditions: list[tuple[Any, Any]], max_depth: int | None, limit: int, offset: int
    ) -> Op:
        matches = tuple(MatchCondition(kind, tuple(path)) for kind, path in conditions)
        return ListNamespacesOp(matches or None, max_depth, limit, offset)


def _stored(result: Any) -> Any:
    """Return what an operation gave as it stands on the tape."""
    match result:
        case Item():
            score, when = getattr(result, "score", None), (result.created_at, result.updated_at)
            return _Stored(result.namespace, result.key, result.value, *when, score)
        case list():
            return [_stored(one) for one in result]
        case _:
            return result  # nothing, or a namespace


def _result(stored: Any) -> Any:
    """Return what an operation gives of what stands on the tape."""
    match stored:
        case _Stored():
            return SearchItem(*msgspec.structs.astuple(stored))
        case list():
            return [_result(one) for one in stored]
        case _:
            return stored
