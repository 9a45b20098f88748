"""The driver of the graph engine: starts, resumes, cancels and awaits a graph's run.

No other module runs a graph. A graph runs in a task of its own and hands its events to the sink in
its context. The engine's own streaming is not used: its node would be orphaned when the reader is
cancelled through an AnyIO scope, it costs twice as much per event, and it holds events back in
bursts.

A node that waits for a human calls `ask_human`, which interrupts the graph. The driver asks the
human port and resumes the graph with the answer; without an answer it raises what the port raised.
The tape lasts, not the engine's checkpoint: a continued run starts from the tape and meets the
same interrupt.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from traceback import clear_frames
from typing import Any, ClassVar, Final, Self

# The engine imports these when the first graph of a process runs: a user would wait for it.
import langchain_core.tracers.context
import langchain_core.tracers.stdout  # noqa: F401 - imported to be there, see above
import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphInterrupt, NodeCancelledError, NodeError
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, Durability, StreamMode, interrupt

from contract.errors import EffectFailed, Fault
from contract.flow import Event
from contract.ports import Effects
from graph_impl.repeats import Repetition

Builder = StateGraph[Any, Any, Any, Any]
Graph = CompiledStateGraph[Any, Any, Any, Any]
Node = Callable[[Any, Runtime[Any]], Awaitable[Any]]

HUMAN: Final = "human"
"""Name of the node that waits for a human, where a flow's context names no other."""

_INTERRUPT: Final = "__interrupt__"
_END: Final = object()
_AHEAD: Final = 32
"""Events that may wait for the reader before the node that adds one waits too."""


class Sink:
    """Where the nodes of one run put their events."""

    __slots__ = ("queue",)

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue()

    async def send(self, *events: Event) -> None:
        """Hand events over; return once the reader has come back from the last."""
        for event in events:
            self._put(event)
        await self.drained()

    async def push(self, event: Event) -> None:
        """Hand over one of many events; after the last of them, await `drained`.

        Pieces of text that arrive together are handed over together: a switch between node and
        reader for each piece costs more than all the work on it.
        """
        self._put(event)
        if self.queue.qsize() >= _AHEAD:
            await self.drained()

    async def drained(self) -> None:
        """Wait until the reader has come back from all events, however slow it is."""
        await self.queue.join()

    def close(self, _: asyncio.Task[Any]) -> None:
        """Mark the end of the events."""
        self.queue.put_nowait(_END)

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events until the sink is closed."""
        while (event := await self.queue.get()) is not _END:
            yield event
            self.queue.task_done()  # only now: with an event in hand the reader may still leave

    def _put(self, event: Event) -> None:
        self.queue.put_nowait(event)


class RepeatedSink(Sink):
    """A sink that drops the events the execution before has sent."""

    __slots__ = ("_repetition",)

    def __init__(self, sink: Sink, repetition: Repetition) -> None:
        self.queue = sink.queue  # the same events for the same reader
        self._repetition = repetition

    def _put(self, event: Event) -> None:
        self._repetition.sent += 1
        if self._repetition.sent > self._repetition.dropping:
            super()._put(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What the nodes of one run reach the world and the client through; never part of the state."""

    effects: Effects
    sink: Sink = field(default_factory=Sink)
    interrupts: list[GraphInterrupt] = field(default_factory=list)
    repetition: Repetition = field(default_factory=Repetition)

    human_node: ClassVar[str] = HUMAN
    """Name of the node that waits for a human, in the graphs that have one."""

    def repeated(self) -> Self:
        """Return the context for an execution of the node that interrupts."""
        self.repetition.begin()
        return replace(
            self,
            effects=self.repetition.effects(self.effects),
            sink=RepeatedSink(self.sink, self.repetition),
        )

    async def ask(self, question: Any) -> Any:
        """Carry a question to the human port; raises `Paused` while there is no answer.

        Question and answer are plain values.
        """
        raise NotImplementedError


def add_nodes(graph: Builder, **nodes: Node) -> None:
    """Add nodes by name, each timed under its name, and its changes of the state noted.

    Time in which the engine itself works, between nodes, is in none of them.
    """
    for name, node in nodes.items():
        graph.add_node(name, _timed(name, node))


def _timed(name: str, node: Node) -> Any:
    @wraps(node)  # the engine reads the types of state and `Command` off the signature
    async def timed(state: Any, runtime: Runtime[Any]) -> Any:
        context = runtime.context
        with context.effects.trace.node(name):
            if name != context.human_node:
                return _noted(context, name, await node(state, runtime))
            try:
                update = await node(state, runtime.override(context=context.repeated()))
            except GraphInterrupt as interrupted:
                context.interrupts.append(interrupted)
                raise
            context.repetition.end()
            return _noted(context, name, update)

    return timed


def _noted(context: RunContext, name: str, update: Any) -> Any:
    """Note what a node changes of the state, and return it as it is."""
    changes = update.update if isinstance(update, Command) else update
    context.effects.trace.changed(name, changes)
    return update


def ask_human(question: Any) -> Any:
    """Interrupt the run with a question and return the answer; raises `EffectFailed`.

    Only in the context's `human_node`, and there first: the engine executes it again from its first
    line.
    """
    resumed = interrupt(question)
    if "fault" in resumed:
        raise EffectFailed(msgspec.convert(resumed["fault"], Fault))
    return resumed["v"]


class _Unhandled(Exception):
    """Carries an error that no handler takes.

    Were it raised as it is, the engine would take it for handled, and run the nodes beside it on.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


def end_on_failure(graph: Builder, failed: Callable[[str], Iterable[Event]]) -> None:
    """End the stream with the events for a fault's code when an effect fails in any node.

    Any other error is raised by the run.
    """

    async def fail(_: Any, error: NodeError, runtime: Runtime[Any]) -> dict[str, Any]:
        if not isinstance(error.error, EffectFailed):
            raise _Unhandled(error.error)
        for event in failed(error.error.fault.code):
            await runtime.context.sink.push(event)
        await runtime.context.sink.drained()
        return {}

    handler: Any = fail  # the library's types know no `error`
    graph.set_node_defaults(error_handler=handler)


def mermaid(graph: Graph) -> str:
    """Return a graph's diagram, without the handler of failures: any node may lead there."""
    drawn = graph.get_graph()
    drawn.nodes.pop("__default_error_handler__", None)
    return drawn.draw_mermaid(with_styles=False)


async def run(
    graph: Graph,
    state: Mapping[str, object],
    context: RunContext,
    *,
    steps: int,
    thread: str | None = None,
) -> AsyncGenerator[Event]:
    """Run a graph and yield what its nodes send to the sink; raises what a node raised.

    `steps` limits the supersteps; `thread` names the thread the graph's saver keeps, if it has one.
    When the reader leaves, the run is cancelled and awaited.
    """
    task = asyncio.create_task(_drive(graph, state, context, steps, thread), name="graph run")
    task.add_done_callback(context.sink.close)
    try:
        async for event in context.sink.events():
            yield event
        await task
    finally:
        await _stop(task)
        # The task's error knows this frame: a cycle that would hold all of the request.
        del task


async def _drive(
    graph: Graph,
    state: Mapping[str, object],
    context: RunContext,
    steps: int,
    thread: str | None,
) -> None:
    """Run the graph to its end, through any number of questions."""
    config: RunnableConfig = {"recursion_limit": steps}
    durability: Durability | None = None
    # Updates carry the questions to a human; other graphs would pay for them and read nothing.
    waits = context.human_node in graph.nodes
    modes: list[StreamMode] = ["updates"] if waits else []
    if thread is not None:
        config["configurable"] = {"thread_id": thread}
        durability = "sync"  # the thread is stored before the node that ends the stream
    elif waits:
        graph = graph.copy(update={"checkpointer": InMemorySaver()})
        config["configurable"] = {"thread_id": "run"}
        durability = "exit"
    todo: Any = state
    try:
        while todo is not None:
            questions: tuple[Any, ...] = ()
            async for update in graph.astream(
                todo, config, context=context, stream_mode=modes, durability=durability
            ):
                questions = update[1].get(_INTERRUPT, ())  # type: ignore[index] # (mode, update)
            while context.interrupts:
                _clear(context.interrupts.pop())
            todo = None
            if questions:
                with context.effects.trace.node(context.human_node):
                    answers = {one.id: await _answer(context, one.value) for one in questions}
                todo = Command(resume=answers)
    except NodeCancelledError as lost:
        _clear(lost)
        raise asyncio.CancelledError from lost  # what the node raised, as any flow raises it
    except _Unhandled as unhandled:
        _clear(unhandled)
        _clear(unhandled.error)
        raise unhandled.error from None
    except BaseException as error:
        _clear(error)
        raise


async def _answer(context: RunContext, question: Any) -> dict[str, Any]:
    """Return what the graph is resumed with: never None, nor an empty mapping (langgraph#7034)."""
    try:
        return {"v": await context.ask(question)}
    except EffectFailed as failure:
        return {"fault": msgspec.to_builtins(failure.fault)}


def _clear(error: BaseException | None) -> None:
    """Clear the frames an error went through: the engine's hold the error that refers to them.

    Uncleared, the whole request would stay, pictures included, until the collector runs.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # a chain of causes may be a ring
        seen.add(id(error))
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


async def _stop(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end, however often we are cancelled meanwhile."""
    interrupted = False
    while not task.done():
        task.cancel()
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            interrupted = True
    if not task.cancelled():
        task.exception()
    if interrupted:
        raise asyncio.CancelledError
