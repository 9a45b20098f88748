"""A compiled LangGraph graph on the tape: the one driver of LangGraph."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, contextmanager
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs, var_child_runnable_config
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphBubbleUp
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Interrupt, StreamMode

from cutover.errors import CutoverError
from cutover.graph_store import TapedStore
from cutover.graph_thread import Thread, new_thread, open_thread
from cutover.tape.run import Run, current_run, timed

Graph = CompiledStateGraph[Any, Any, Any, Any]

AHEAD = 64
"""Parts that a graph may be ahead of the client: it is pulled, as far as LangGraph lets one."""


class NoAnswer(CutoverError):
    """A graph interrupted, and was wrapped without an `answer` that returns one."""

    def __init__(self, value: Any) -> None:
        super().__init__(f"interrupt({value!r}): pass wrap_graph an answer= that returns something")


def wrap_graph(
    graph: Graph,
    *,
    answer: Callable[[Any], Awaitable[Any]] | None = None,
    saver: Callable[[], BaseCheckpointSaver[Any] | None] | None = None,
) -> TapedGraph:
    """Return what a stack streams in a compiled graph's place: its `astream` is on the tape.

        taped = wrap_graph(builder.compile(checkpointer=saver, store=store))

        async def stack(request: Request[Ask, Options]) -> AsyncIterator[Event]:
            asked = {"messages": [("user", request.body.text)]}
            thread = {"configurable": {"thread_id": request.body.thread}}
            async for part, about in taped.astream(asked, thread, stream_mode="messages"): ...

    An interrupt is reported as LangGraph does, `{"__interrupt__": (…,)}` in mode `updates`, behind
    all other parts. Once it has been read, `answer(value)` is awaited, and its result, which must
    not be None or `{}`, is what `interrupt(value)` returns. It raises `cutover.Paused` while there
    is no answer: the exchange pauses, and is run from the start when there is one. `saver` returns
    the saver that is open, where it is not the graph's own; it is for threads that are only looked
    at: nothing is read of them, a saver that fails costs no answer, and runs that play, or may
    pause, do without.

    The graph runs in a task of its own, with the caller's context. Its store goes on the tape, and
    tools that ran without a call on it are in `Run.escaped`. A graph with a saver of its own works
    on its thread in memory and stores it once, at the end: see `cutover.graph_thread`.

    Limits: only `astream` and `ainvoke` are on the tape; what reads or changes a thread beside them
    does so in shadows, too, and sees an exchange when it is complete. State that a run needs of its
    saver stands at the graph's top, not in a subgraph with `checkpointer=True`. `SystemExit` in a
    tool or an edge, which LangGraph runs in tasks that nothing can contain, ends the process.
    """
    return TapedGraph(graph, answer, saver)


class TapedGraph:
    """A compiled graph whose stream belongs to the current run; `wrap_graph` makes it.

    `graph` is the graph as it was.
    """

    def __init__(
        self,
        graph: Graph,
        answer: Callable[[Any], Awaitable[Any]] | None,
        saver: Callable[[], BaseCheckpointSaver[Any] | None] | None,
    ) -> None:
        self.graph = graph
        self._prepared, self._answer, self._saver = _prepared(graph), answer, saver

    async def astream(
        self,
        input: Any,  # noqa: A002 - as LangGraph names it
        config: RunnableConfig | None = None,
        *,
        stream_mode: StreamMode | Sequence[StreamMode] | None = None,
        **settings: Any,
    ) -> AsyncGenerator[Any, None]:
        """Stream the graph through its interrupts to its end; see `Pregel.astream`.

        Raises `ValueError` where a graph with a saver is given no thread.
        """
        asked = stream_mode or self.graph.stream_mode
        modes = {asked} if isinstance(asked, str) else set(asked)
        app, thread, config = await self._open(config or {})
        settings |= {
            "stream_mode": sorted({*modes, "updates"} if app.checkpointer else modes),
            "durability": "exit" if app.checkpointer else None,
        }
        bare, todo = isinstance(asked, str), input
        reported: set[str] = set()
        while True:
            interrupts: dict[str, Interrupt] = {}
            async with aclosing(_pumped(app.astream(todo, config, **settings))) as parts:
                async for part in parts:
                    mode, value = _read(part)
                    if mode == "updates":
                        interrupts |= {one.id: one for one in value.get("__interrupt__", ())}
                        if value.get("__interrupt__") or _repeated(value, reported):
                            continue
                    if mode in modes:
                        yield _shaped(part, bare=bare)
            if not interrupts:
                break
            if "updates" in modes:
                asking = {"__interrupt__": tuple(interrupts.values())}
                yield _shaped(_update(part, asking), bare=bare)
            todo = Command(resume=await self._answers(interrupts))
        if thread is not None:
            await thread.save()

    async def ainvoke(
        self,
        input: Any,  # noqa: A002 - as LangGraph names it
        config: RunnableConfig | None = None,
        **settings: Any,
    ) -> Any:
        """Run the graph through its interrupts to its end, and return its last state."""
        last: Any = None
        values = self.astream(input, config, stream_mode="values", **settings)
        async with aclosing(values) as states:
            async for state in states:
                last = state
        return last

    def with_config(self, config: RunnableConfig | None = None, **given: Any) -> TapedGraph:
        """Return the graph with a config bound to it; see `Pregel.with_config`."""
        return TapedGraph(self.graph.with_config(config, **given), self._answer, self._saver)

    async def _open(self, config: RunnableConfig) -> tuple[Graph, Thread | None, RunnableConfig]:
        """Return the graph with the saver of this run, its thread in memory, and its config."""
        run, app, thread = current_run(), self._prepared, None
        named = merge_configs(self.graph.config, config)
        settings = merge_configs({"configurable": {"thread_id": "run"}}, named)
        if isinstance(app.checkpointer, BaseCheckpointSaver):
            if "thread_id" not in named.get("configurable", {}):
                message = "the graph has a saver: name the request's thread, as thread_id in config"
                raise ValueError(message)
            thread = await open_thread(app.checkpointer, settings)
        elif self._answer is not None or (run is not None and run.policy != "live"):
            app = app.copy(update={"checkpointer": InMemorySaver()})
        elif self._saver is not None and (saver := self._saver()) is not None:
            thread = new_thread(saver, settings)
        if thread is not None:
            app, settings = app.copy(update={"checkpointer": thread.memory}), thread.config
        if run is not None:
            settings = merge_configs(settings, {"callbacks": [ToolWatch(run)]})
        return app, thread, settings

    async def _answers(self, interrupts: Mapping[str, Interrupt]) -> dict[str, Any]:
        """Return the answers by interrupt; raises what `answer` raises, or `NoAnswer`."""
        answers: dict[str, Any] = {}
        for one, asked in interrupts.items():
            given = None if self._answer is None else await self._answer(asked.value)
            if given is None or given == {}:  # LangGraph takes them for none, and asks again
                raise NoAnswer(asked.value)
            answers[one] = given
        return answers


def _read(part: Any) -> tuple[str, Any]:
    """Return mode and value of a part of several modes, of either version of LangGraph's parts."""
    return (part["type"], part["data"]) if isinstance(part, dict) else part[-2:]


def _update(part: Any, value: Any) -> Any:
    """Return an update of the whole graph in the form of another part of its stream."""
    if isinstance(part, dict):
        return {"type": "updates", "ns": (), "data": value}
    return (*((),) * (len(part) - 2), "updates", value)


def _shaped(part: Any, *, bare: bool) -> Any:
    """Return a part as LangGraph yields it: without its mode where one mode was asked for."""
    if not bare or isinstance(part, dict):
        return part
    *place, _mode, value = part
    return (*place, value) if place else value


def _repeated(value: Any, reported: set[str]) -> bool:
    """Whether an update is of a node that ran before an interrupt: it comes again behind it."""
    nodes = value.keys() - {"__metadata__"}
    again = bool((value.get("__metadata__") or {}).get("cached")) and nodes <= reported
    reported |= nodes
    return again


async def _pumped(stream: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
    """Yield from a graph's stream that runs in a task of its own.

    Closed from within a cancelled scope, LangGraph's own generator leaves its nodes running, and
    the model's answer with them; a task that is cancelled ends them. A part goes out at the moment
    of what had been read for it, however long it has waited.
    """
    queue: asyncio.Queue[tuple[Any, int] | Exception | None] = asyncio.Queue(AHEAD)
    run = current_run()

    async def pump() -> None:
        try:
            async for part in stream:
                await queue.put((part, run.now if run else 0))
        except Exception as error:  # noqa: BLE001 - raised where the parts are read
            if run is not None:
                run.keep_reads()
            await queue.put(error)
        else:
            await queue.put(None)

    task = asyncio.get_running_loop().create_task(pump(), context=contextvars.copy_context())
    try:
        while (given := await queue.get()) is not None:
            if isinstance(given, Exception):
                raise given
            part, now = given
            if run is not None:
                run.now = now
            yield part
    finally:
        if task.cancel():
            await asyncio.shield(asyncio.wait({task}))


def _prepared(graph: Graph, within: str = "") -> Graph:
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

    def invoke(self, *given: Any, **named: Any) -> Any:
        with _contained(str(self.name)):
            return self._bound.invoke(*given, **named)

    async def ainvoke(self, *given: Any, **named: Any) -> Any:
        with _contained(str(self.name)):
            return await self._bound.ainvoke(*given, **named)


@contextmanager
def _contained(node: str) -> Iterator[None]:
    try:
        with timed(node):
            yield
    except SystemExit as error:
        message = f"node {node!r} raised SystemExit, which would end the whole process"
        raise CutoverError(message) from error


class ToolWatch(BaseCallbackHandler):
    """Counts in `Run.escaped`, by name, the tools that ran without a call on the tape.

    Such a tool is pure, or what it does reaches the world in shadows, too. A call belongs to the
    tool in whose context it is made, or, where that is not known, to all that run at the time.
    """

    run_inline = True  # in order, and before the tool runs
    ignore_chain = ignore_llm = ignore_retriever = True

    def __init__(self, run: Run) -> None:
        self._run = run
        self._names: dict[UUID, str] = {}
        self._taped: set[UUID] = set()
        run.on_call = self._called

    def on_tool_start(
        self, serialized: dict[str, Any], input_str: str, *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Note that a tool runs."""
        del input_str, kwargs
        self._names[run_id] = str((serialized or {}).get("name"))

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Count a tool that has made no call."""
        del output, kwargs
        name = self._names.pop(run_id, None)
        if name is not None and run_id not in self._taped:
            self._run.escaped[name] += 1

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Count it as well, unless it pauses."""
        if not isinstance(error, GraphBubbleUp):
            self.on_tool_end(error, run_id=run_id, **kwargs)

    def _called(self) -> None:
        config = var_child_runnable_config.get() or {}
        tool = getattr(config.get("callbacks"), "parent_run_id", None)
        self._taped |= {tool} if tool in self._names else set(self._names)
