"""A compiled LangGraph graph as a stack: the one driver of LangGraph, and its store on the tape."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from typing import Any, Literal

import msgspec
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.state import CompiledStateGraph
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
from langgraph.types import Command, StreamMode

from cutover.errors import CutoverError
from cutover.flow import Event, Request, Stack
from cutover.graph_thread import Thread, open_thread
from cutover.graph_tools import ToolWatch
from cutover.tape.effect import effect
from cutover.tape.run import current_run

Part = tuple[str, Any]
"""A stream mode and what LangGraph yields in it; `("interrupt", value)` for each `interrupt()`."""

AHEAD = 64
"""Parts that a graph may be ahead of the client: it is pulled, as far as LangGraph lets one."""


class NodeExited(CutoverError):
    """A node raised `SystemExit`, which would end the whole process."""

    def __init__(self, node: str) -> None:
        super().__init__(f"node {node!r} raised SystemExit")


class NoAnswer(CutoverError):
    """A graph interrupted, and its stack was made without `answer`."""

    def __init__(self, value: Any) -> None:
        super().__init__(f"interrupt({value!r}): pass answer= to wrap_graph to resume from it")


def wrap_graph(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    *,
    inputs: Callable[[Request[Any, Any]], Any],
    events: Callable[[Request[Any, Any], AsyncIterator[Part]], AsyncIterator[Event]],
    modes: Sequence[StreamMode] = ("custom",),
    config: Callable[[Request[Any, Any]], RunnableConfig | Awaitable[RunnableConfig]] | None = None,
    context: Callable[[Request[Any, Any]], Any] | None = None,
    answer: Callable[[Any], Awaitable[Any]] | None = None,
    saver: Callable[[], BaseCheckpointSaver[Any] | None] | None = None,
) -> Stack:
    """Return a stack that runs a compiled graph.

        stack = wrap_graph(
            graph, inputs=lambda request: {"messages": [("user", request.body.text)]},
            events=my_events, modes=("messages", "custom"),
        )

    `inputs` makes the graph's input of a request, `events` the flow's events of the graph's stream;
    `config` and `context` are what `graph.astream` takes, and `config` may be a coroutine function
    that calls effects. `saver` returns the saver that is open, where it is not the graph's own. An
    `interrupt(value)` is a part of its own; when `events` has passed it on, `answer(value)` is
    awaited, and its result is what `interrupt` returns. It raises `cutover.Paused` while there is
    no answer: the exchange pauses, and is run from the start when there is one.

    The graph runs in a task of its own, with the caller's context. Its store goes on the tape, and
    tools that ran without a call on it are in `Run.escaped`. A graph with a saver of its own works
    on its thread in memory and stores it once, at the end: see `cutover.graph_thread`. `saver` is
    for threads that are only looked at: runs that play, or may pause, do without.

    Limits: state that a run needs of its saver stands at the graph's top, not in a subgraph with
    `checkpointer=True`; `aget_state` shows an exchange when it is complete; `SystemExit` in a tool,
    which LangGraph runs in a task that nothing can contain, still ends the process. Raises
    `ValueError` for a graph with a saver and no `config`.
    """
    if isinstance(graph.checkpointer, BaseCheckpointSaver) and config is None:
        message = "the graph has a saver: name the thread of each request, with config="
        raise ValueError(message)
    prepared = _prepared(graph)
    forwarded = frozenset(modes)
    subgraphs = any(node.subgraphs for node in graph.nodes.values())

    async def stack(request: Request[Any, Any]) -> AsyncIterator[Event]:
        settings: RunnableConfig = {"configurable": {"thread_id": "run"}}
        if config is not None:
            chosen = config(request)
            settings = await chosen if inspect.isawaitable(chosen) else chosen
        run, app, thread = current_run(), prepared, None
        if isinstance(app.checkpointer, BaseCheckpointSaver):
            thread = await open_thread(app.checkpointer, settings)
            app, settings = app.copy(update={"checkpointer": thread.memory}), thread.config
        elif answer is not None or (run is not None and run.policy == "play"):
            app = app.copy(update={"checkpointer": InMemorySaver()})
        elif saver is not None:
            app = app.copy(update={"checkpointer": saver()})
        if run is not None:
            settings = merge_configs(settings, {"callbacks": [ToolWatch(run)]})
        stream = {
            "config": settings,
            "context": context(request) if context else None,
            "stream_mode": sorted({*modes, "updates"} if answer else forwarded),
            "subgraphs": subgraphs,
            "durability": "exit" if app.checkpointer else None,
        }
        parts = _parts(app, inputs(request), stream, forwarded, answer, thread)
        async with aclosing(parts), aclosing(events(request, parts)) as stream_of_events:  # type: ignore[type-var]
            async for event in stream_of_events:
                yield event

    return stack


async def _parts(
    app: CompiledStateGraph[Any, Any, Any, Any],
    todo: Any,
    stream: dict[str, Any],
    forwarded: frozenset[str],
    answer: Callable[[Any], Awaitable[Any]] | None,
    thread: Thread | None,
) -> AsyncGenerator[Part, None]:
    """Yield what a graph streams, through its interrupts to its end, and keep its last state."""
    while todo is not None:
        interrupts: dict[str, Any] = {}
        async with aclosing(_pumped(app.astream(todo, **stream))) as parts:
            async for part in parts:
                mode, value = part[-2:]
                if mode == "updates" and "__interrupt__" in value:
                    interrupts |= {one.id: one.value for one in value["__interrupt__"]}
                elif mode in forwarded and not _repeated(mode, value):
                    yield mode, value
        for value in interrupts.values():
            yield "interrupt", value
        todo = None
        if interrupts:
            if answer is None:
                raise NoAnswer(next(iter(interrupts.values())))
            # In a dict of a fresh one each: LangGraph takes None and an empty dict for no answer.
            answers = {one: {"answer": await answer(value)} for one, value in interrupts.items()}
            todo = Command(resume=answers)
    if thread is not None:
        await thread.save()


def _repeated(mode: str, value: Any) -> bool:
    """Whether an update stands for a node that ran before an interrupt."""
    return mode == "updates" and bool((value.get("__metadata__") or {}).get("cached"))


async def _pumped(stream: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
    """Yield from a graph's stream that runs in a task of its own.

    Closed from within a cancelled scope, LangGraph's own generator leaves its nodes running, and
    the model's answer with them; a task that is cancelled ends them.
    """
    queue: asyncio.Queue[tuple[str, Any]] = asyncio.Queue(AHEAD)

    async def pump() -> None:
        try:
            async for part in stream:
                await queue.put(("part", part))
        except Exception as error:  # noqa: BLE001 - raised where the parts are read
            await queue.put(("error", error))
        else:
            await queue.put(("end", None))

    task = asyncio.get_running_loop().create_task(pump(), context=contextvars.copy_context())
    try:
        while True:
            kind, value = await queue.get()
            if kind == "end":
                return
            if kind == "error":
                raise value
            yield value
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.shield(asyncio.wait({task}))


def _prepared(
    graph: CompiledStateGraph[Any, Any, Any, Any], within: str = ""
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return a graph whose nodes are contained and timed, and whose store is on the tape.

    Subgraphs that are nodes are prepared alike.
    """
    nodes = dict(graph.nodes)
    for name, node in graph.nodes.items():
        if not name.startswith("__"):
            bound, path = node.bound, f"{within}{name}"
            if isinstance(bound, CompiledStateGraph):
                bound = _prepared(bound, f"{path}.")
            nodes[name] = node.copy({"bound": _Node(path, bound)})
    update: dict[str, Any] = {"nodes": nodes}
    if graph.store is not None and not isinstance(graph.store, TapedStore):
        update["store"] = TapedStore(graph.store)
    return graph.copy(update=update)


class _Node(Runnable[Any, Any]):
    """A node whose `SystemExit` is an error like others, and whose time is noted on the run."""

    def __init__(self, name: str, bound: Runnable[Any, Any]) -> None:
        self.name, self._bound = name, bound

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002 - Runnable's name
        began = time.perf_counter()
        try:
            return self._bound.invoke(input, config, **kwargs)
        except SystemExit as error:
            raise NodeExited(str(self.name)) from error
        finally:
            self._note(began)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002 - Runnable's name
        began = time.perf_counter()
        try:
            return await self._bound.ainvoke(input, config, **kwargs)
        except SystemExit as error:
            raise NodeExited(str(self.name)) from error
        finally:
            self._note(began)

    def _note(self, began: float) -> None:
        run = current_run()
        if run is not None:
            run.spend(str(self.name), time.perf_counter() - began)


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

    `wrap_graph` does it for the graph's own store. Outside a run it is the store.
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
                return _item(await self._get(op.namespace, op.key))
            case SearchOp():
                return [_found(one) for one in await self._search(*op[:5])]
            case PutOp():
                await self._put(op.namespace, op.key, _plain(op.value), op.index, op.ttl)
                return None
            case ListNamespacesOp():
                conditions = [(c.match_type, c.path) for c in op.match_conditions or ()]
                return await self._list(conditions, op.max_depth, op.limit, op.offset)

    def _one_blocking(self, op: Op) -> Result:
        match op:
            case GetOp():
                return _item(self._get_blocking(op.namespace, op.key))
            case SearchOp():
                return [_found(one) for one in self._search_blocking(*op[:5])]
            case PutOp():
                self._put_blocking(op.namespace, op.key, _plain(op.value), op.index, op.ttl)
                return None
            case ListNamespacesOp():
                conditions = [(c.match_type, c.path) for c in op.match_conditions or ()]
                return self._list_blocking(conditions, op.max_depth, op.limit, op.offset)

    @effect("store.get")
    async def _get(self, namespace: tuple[str, ...], key: str) -> _Stored | None:
        [item] = await self._store.abatch([GetOp(namespace, key)])
        return _stored(item)

    @effect("store.get")
    def _get_blocking(self, namespace: tuple[str, ...], key: str) -> _Stored | None:
        [item] = self._store.batch([GetOp(namespace, key)])
        return _stored(item)

    @effect("store.search")
    async def _search(
        self,
        namespace: tuple[str, ...],
        filter: dict[str, Any] | None,  # noqa: A002 - as the operation calls it
        limit: int,
        offset: int,
        query: str | None,
    ) -> list[_Stored]:
        [items] = await self._store.abatch([SearchOp(namespace, filter, limit, offset, query)])
        return _all_stored(items)

    @effect("store.search")
    def _search_blocking(
        self,
        namespace: tuple[str, ...],
        filter: dict[str, Any] | None,  # noqa: A002 - as the operation calls it
        limit: int,
        offset: int,
        query: str | None,
    ) -> list[_Stored]:
        [items] = self._store.batch([SearchOp(namespace, filter, limit, offset, query)])
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
