"""What the graphs of all flows share: their context and store, and the stream of one request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore, Op, Result
from langgraph.types import StreamMode

from cutover import Request
from cutover.graph import TapedGraph
from effects.world import current

Event = TypeVar("Event")
Options = TypeVar("Options", bound=msgspec.Struct)


@dataclass(frozen=True)
class Context:
    """What a run is configured with: the flow's options, as JSON."""

    options: dict[str, Any] = field(default_factory=dict)


def options_of(runtime: Runtime[Context], kind: type[Options]) -> Options:
    """Return the options of a run, the defaults where it is run without a context."""
    context: Context | None = runtime.context
    return msgspec.convert(context.options if context is not None else {}, kind)


def store_of(runtime: Runtime[Context]) -> BaseStore:
    """Return the store that a graph was compiled with."""
    assert runtime.store is not None  # noqa: S101 - the caller's was
    return runtime.store


class CurrentStore(BaseStore):
    """Hands each operation on to the current world's memory: graphs are compiled on import.

    `wrap_graph` puts it on the tape, as it does with any graph's store.
    """

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations in order."""
        return await current().memory.abatch(ops)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations in order, from a thread."""
        return current().memory.batch(ops)


def send(runtime: Runtime[Context], event: msgspec.Struct) -> None:
    """Stream an event of the flow, as JSON: custom parts of a graph's stream are no objects."""
    runtime.stream_writer(msgspec.to_builtins(event))


def told(events: Any, text: Callable[[str], Any]) -> Callable[[Any], Iterator[Any]]:
    """Return what makes a flow's `events`, a union, of what its graph streams.

    `text` makes the event of a piece of the model's text; all else was sent as an event.
    """

    def found(part: Any) -> Iterator[Any]:
        if not isinstance(part, BaseMessage):
            yield msgspec.convert(part, events)
        elif isinstance(part, AIMessageChunk) and part.content:
            yield text(str(part.content))

    return found


async def streamed(
    graph: TapedGraph,
    request: Request[Any, Any],
    modes: Sequence[StreamMode],
    events: Callable[[Any], Iterable[Event]],
    *,
    given: dict[str, Any] | None = None,
    config: RunnableConfig | None = None,
) -> AsyncGenerator[Event, None]:
    """Run a graph for a request, and yield the events of what it streams.

    `events` takes a message, what a node writes, or the value of an interrupt. `given` is the
    graph's input where it is not the body.
    """
    stream = graph.astream(
        given or msgspec.to_builtins(request.body),
        config,
        context=Context(msgspec.to_builtins(request.options)),
        stream_mode=modes,
    )
    async with aclosing(stream) as parts:
        async for mode, part in parts:
            match mode:
                case "messages":
                    found = part[:1]
                case "updates":
                    found = [asked.value for asked in part.get("__interrupt__", ())]
                case _:
                    found = [part]
            for one in found:
                for event in events(one):
                    yield event
