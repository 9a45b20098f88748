"""LangGraph's store on the tape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import Parameter, Signature
from typing import Any

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


def _operation(
    name: str, kind: type[Op], *, writes: bool = False
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the effects of an operation, for coroutines and for threads.

    Their arguments are the store and the operation's fields, their result is JSON.
    """

    async def awaited(store: BaseStore, *fields: Any) -> Any:
        [result] = await store.abatch([kind(*fields)])
        return _plain(result)

    def blocking(store: BaseStore, *fields: Any) -> Any:
        [result] = store.batch([kind(*fields)])
        return _plain(result)

    taped = effect(name, writes=writes, ignore=("store", "refresh_ttl"))
    # The tape has a namespace under one name, whatever the operation calls it.
    names = ("store", *(one.removesuffix("_prefix") for one in kind._fields))
    signature = Signature([Parameter(one, Parameter.POSITIONAL_OR_KEYWORD) for one in names])
    function: Any
    for function in (awaited, blocking):
        function.__signature__ = signature
    return taped(awaited), taped(blocking)


_EFFECTS = {
    GetOp: _operation("store.get", GetOp),
    SearchOp: _operation("store.search", SearchOp),
    PutOp: _operation("store.put", PutOp, writes=True),
    ListNamespacesOp: _operation("store.list", ListNamespacesOp),
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
        return [_result(await _EFFECTS[type(op)][0](self.store, *op)) for op in ops]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations in order, from a thread; see `BaseStore.batch`."""
        return [_result(_EFFECTS[type(op)][1](self.store, *op)) for op in ops]


def _plain(result: Any) -> Any:
    """Return what an operation gave as it stands on the tape."""
    if isinstance(result, list):
        return [_plain(one) for one in result]
    return result.dict() if isinstance(result, Item) else result  # nothing, or a namespace


def _result(stored: Any) -> Any:
    """Return what an operation gives of what stands on the tape."""
    match stored:
        case dict():
            return SearchItem(**stored)
        case [str(), *_]:
            return tuple(stored)  # a namespace
        case list():
            return [_result(one) for one in stored]
        case _:
            return stored
