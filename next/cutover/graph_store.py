"""LangGraph's store on the tape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from inspect import Parameter, Signature
from typing import Any

import msgspec
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

from cutover.tape.effect import effect


class _Stored(msgspec.Struct, frozen=True):
    """An item of a store, as it stands on the tape."""

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    score: float | None = None


def _operation(
    name: str, kind: type[Op], kept: Any, *, writes: bool = False
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the effects of an operation, for coroutines and for threads.

    Their arguments are the store and the operation's fields; the tape has its result as `kept`.
    """

    async def awaited(store: BaseStore, *fields: Any) -> Any:
        [result] = await store.abatch([kind(*fields)])
        return _stored(result)

    def blocking(store: BaseStore, *fields: Any) -> Any:
        [result] = store.batch([kind(*fields)])
        return _stored(result)

    taped = effect(name, writes=writes, ignore=("store", "refresh_ttl"))
    # The tape has a namespace under one name, whatever the operation calls it.
    names = ("store", *(one.removesuffix("_prefix") for one in kind._fields))
    signature = Signature([Parameter(one, Parameter.POSITIONAL_OR_KEYWORD) for one in names])
    function: Any
    for function in (awaited, blocking):
        function.__signature__ = signature
        function.__annotations__["return"] = kept
    return taped(awaited), taped(blocking)


_EFFECTS = {
    GetOp: _operation("store.get", GetOp, _Stored | None),
    SearchOp: _operation("store.search", SearchOp, list[_Stored]),
    PutOp: _operation("store.put", PutOp, None, writes=True),
    ListNamespacesOp: _operation("store.list", ListNamespacesOp, list[tuple[str, ...]]),
}


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
        return [_result(await _EFFECTS[type(op)][0](self.store, *_plain(op))) for op in ops]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations in order, from a thread; see `BaseStore.batch`."""
        return [_result(_EFFECTS[type(op)][1](self.store, *_plain(op))) for op in ops]


def _plain(op: Op) -> Op:
    """Return an operation whose value is a dict, as JSON has it."""
    if isinstance(op, PutOp) and op.value is not None:
        return op._replace(value=dict(op.value))
    return op


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
