"""What the graphs of all flows share: context and store, prompts, tools, a request's stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, BaseMessage, ToolMessage
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore, Op, Result
from langgraph.types import StreamMode

from cutover import Request
from cutover.graph import TapedGraph
from effects.tools import ToolError, ToolSpec
from effects.world import current
from graph_impl.model import CALLS, tool_call
from rules.prompts import as_texts, default_prompt, tool_error

Event = TypeVar("Event")
Options = TypeVar("Options", bound=msgspec.Struct)

log = logging.getLogger(__name__)

PROMPTS = Path(__file__).parent / "prompts"
"""The prompts of this stack, a template each."""


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


@cache
def _template(path: Path) -> PromptTemplate:
    return PromptTemplate.from_template(path.read_text("utf-8").removesuffix("\n"))


def prompt(name: str, parameters: Mapping[str, Any], folder: Path = PROMPTS) -> str:
    """Return a prompt, filled in; a missing file is replaced by the built-in one, and logged."""
    try:
        template = _template(folder / f"{name}.txt")
    except FileNotFoundError:
        log.warning("prompt=%s missing folder=%s: the built-in one stands in", name, folder)
        return default_prompt(name, parameters)
    texts = as_texts(parameters)
    return template.format(**{one: texts.get(one, "") for one in template.input_variables})


def langchain_tools(
    names: Sequence[str], *, user_id: str = "", session_id: str = ""
) -> list[BaseTool]:
    """Return tools as LangChain takes them, for one user."""

    def made(spec: ToolSpec) -> BaseTool:
        async def call(**arguments: Any) -> str:
            try:
                return await current().tools.call(
                    spec.name, arguments, user_id=user_id, session_id=session_id
                )
            except ToolError as error:
                raise ToolException(tool_error(error.code)) from error

        return StructuredTool(
            name=spec.name,
            description=spec.description,
            args_schema=spec.parameters,
            coroutine=call,
            handle_tool_error=True,
        )

    return [made(current().tools.spec(name)) for name in names]


Report = Callable[[ToolMessage], None]
"""Takes the result of a call, in the order of the calls, once those before it are in."""


async def run_round(
    answer: AnyMessage, tools: Sequence[BaseTool], report: Report
) -> list[AnyMessage]:
    """Run the tool calls of an answer at the same time and return their messages, in order."""
    assert isinstance(answer, AIMessage)  # noqa: S101 - the edge leads here from one alone
    node, known = ToolNode(tools), {one.name for one in tools}
    calls = answer.additional_kwargs[CALLS]
    results: dict[int, ToolMessage] = {}
    reported = 0

    async def run(place: int, call: dict[str, str]) -> None:
        nonlocal reported
        results[place] = await _result(node, known, call)
        while reported in results:
            report(results[reported])
            reported += 1

    async with asyncio.TaskGroup() as group:
        for place, call in enumerate(calls):
            group.create_task(run(place, call))
    return [results[place] for place in range(len(calls))]


async def _result(node: ToolNode, known: set[str], call: dict[str, str]) -> ToolMessage:
    parsed = tool_call(call)
    if call["name"] not in known:
        return _refused(call, tool_error("unknown_tool"))
    if parsed is None:
        return _refused(call, tool_error("bad_arguments"))
    result: ToolMessage = (await node.ainvoke([parsed]))["messages"][0]
    return result


def _refused(call: dict[str, str], content: str) -> ToolMessage:
    return ToolMessage(content, name=call["name"], tool_call_id=call["id"], status="error")


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
