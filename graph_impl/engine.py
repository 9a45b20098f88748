"""Drives the graph engine: the only file that starts, cancels and awaits a graph's run.

A graph runs in a task of its own and hands its events to a sink in the runtime context. The
engine's own streaming is not used: its node would be orphaned when the reader is cancelled
through an AnyIO scope, it costs twice as much per event, and it holds events back in bursts.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, Final

# The engine imports these when the first graph of a process runs: a user would wait for it.
import langchain_core.tracers.context
import langchain_core.tracers.stdout  # noqa: F401 - imported to be there, see above
from langgraph.errors import NodeCancelledError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping

    from langchain_core.runnables import RunnableConfig
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.types import Durability

    from contract.flow import Event

_END: Final = object()
_AHEAD: Final = 32
"""Events that may wait for the reader before whoever says more waits too."""


class Sink:
    """Where the nodes of one run put their events."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    async def send(self, event: Event) -> None:
        """Hand an event over; the node goes on once the reader has come back from it."""
        self._queue.put_nowait(event)
        await self.taken()

    async def say(self, event: Event) -> None:
        """Hand over one of many events; whoever has said the last of them waits for `taken`.

        To change between node and reader for each piece of a text costs more than all that is
        done for it: pieces that came together are handed over together.
        """
        self._queue.put_nowait(event)
        if self._queue.qsize() >= _AHEAD:
            await self.taken()

    async def taken(self) -> None:
        """Wait until the reader has come back from all that was handed over, however slow he is."""
        await self._queue.join()

    def close(self, _: asyncio.Task[Any]) -> None:
        """Nothing more will come."""
        self._queue.put_nowait(_END)

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events until the sink is closed."""
        while (event := await self._queue.get()) is not _END:
            yield event
            self._queue.task_done()  # not before: with an event in hand he may still leave


@dataclass(frozen=True, slots=True)
class Course:
    """How many supersteps a run may take, and the thread it keeps, if any."""

    steps: int
    thread: str | None = None


async def run(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    state: Mapping[str, object],
    context: object,
    sink: Sink,
    course: Course,
) -> AsyncGenerator[Event]:
    """Run a graph and yield what its nodes send to the sink; raises what a node raised.

    The graph starts from `state`, and its nodes are given `context`. When the reader leaves, the
    run is cancelled and awaited.

    The engine starts with the loop's next turn: whoever was woken by an event yielded before has
    sent it by then.
    """
    task = asyncio.create_task(_drain(graph, state, context, _config(course)), name="graph run")
    task.add_done_callback(sink.close)
    try:
        async for event in sink.events():
            yield event
        await task
    finally:
        await _stop(task)
        # Its error knows this frame: they would keep each other, and all that was asked.
        del task


async def _drain(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    state: Mapping[str, object],
    context: object,
    config: RunnableConfig,
) -> None:
    # No stream mode: nobody reads the states between the steps, so they are not put together.
    # One state is kept of a run, its last: what breaks off is begun anew from the store.
    kept: Durability | None = "exit" if graph.checkpointer else None
    try:
        async for _ in graph.astream(
            state, config, context=context, stream_mode=[], durability=kept
        ):
            pass
    except NodeCancelledError as lost:
        _let_go(lost)
        raise asyncio.CancelledError from lost  # what the node raised, as any flow raises it
    except BaseException as error:
        _let_go(error)
        raise


def _let_go(error: BaseException | None) -> None:
    """Empty the frames an error went through: the engine's hold the error that knows them.

    With them all that was asked would stay, pictures too, until the collector comes.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # chains may be rings
        seen.add(id(error))
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _config(course: Course) -> RunnableConfig:
    config: RunnableConfig = {"recursion_limit": course.steps}
    if course.thread is not None:
        config["configurable"] = {"thread_id": course.thread}
    return config


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
