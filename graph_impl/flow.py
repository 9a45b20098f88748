"""What the graphs of all flows share: context and store, prompts, tools, a request's stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore, Op, Result

from cutover import Request
from cutover.graph import TapedGraph
from effects import pauses
from effects.conversations import Turn
from effects.models import ModelEntry
from effects.tools import ToolError, ToolSpec
from effects.world import current
from graph_impl.model import tool_call
from rules.prompts import as_texts, default_prompt, tool_error

Event = TypeVar("Event")
Options = TypeVar("Options", bound=msgspec.Struct)

log = logging.getLogger(__name__)

# Context and store


@dataclass(frozen=True)
class Context:
    """What a run is configured with: the flow's options, as JSON."""

    options: dict[str, Any] = field(default_factory=dict)


def options_of(kind: type[Options], runtime: Runtime[Context]) -> Options:
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


# Prompts and messages

PROMPTS = Path(__file__).parent / "prompts"
"""The prompts of this stack, a template each, as `cutover prompts convert` wrote them."""
FORMATS: Final[Mapping[str, Literal["f-string", "jinja2"]]] = {".txt": "f-string", ".j2": "jinja2"}
"""LangChain's formats by the suffixes of files."""


@cache
def _template(name: str) -> PromptTemplate | None:
    for path in (one for kind in FORMATS if (one := PROMPTS / f"{name}{kind}").is_file()):
        text = path.read_text("utf-8").removesuffix("\n")
        return PromptTemplate.from_template(text, template_format=FORMATS[path.suffix])
    return None


def prompt(name: str, parameters: Mapping[str, Any]) -> str:
    """Return a prompt, filled in; a missing file is replaced by the built-in one, and logged."""
    if (template := _template(name)) is None:
        log.warning("prompt=%s missing folder=%s: the built-in one stands in", name, PROMPTS)
        return default_prompt(name, parameters)
    if template.template_format == "jinja2":
        return template.format(**parameters)
    texts = as_texts(parameters)
    return template.format(**{one: texts.get(one, "") for one in template.input_variables})


def message_of(turn: Turn) -> AnyMessage:
    """Return a stored turn as a message."""
    if turn.role == "assistant":
        return AIMessage(turn.content, id=turn.id)
    named = f"[{turn.name}]: {turn.content}" if turn.name else turn.content
    return HumanMessage(named, id=turn.id)


def replacing(turns: Iterable[Turn]) -> list[BaseMessage]:
    """Return an update of `messages` that has stored turns stand for all that a thread holds."""
    return [RemoveMessage(REMOVE_ALL_MESSAGES), *map(message_of, turns)]


# Tools


def langchain_tools(
    entry: ModelEntry, *, enabled: bool, user_id: str = "", session_id: str = ""
) -> list[BaseTool]:
    """Return the tools that a model is offered for one user, as LangChain takes them."""

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

    return [made(spec) for spec in current().tools.specs] if enabled and entry.tools else []


async def run_round(
    calls: Sequence[dict[str, str]],
    tools: Sequence[BaseTool],
    report: Callable[[ToolMessage], None] | None = None,
) -> list[AnyMessage]:
    """Run an answer's tool calls at the same time and return their messages, in order.

    `report` takes the result of a call in that order, too, once those before it are in.
    """
    node, known = ToolNode(tools), {one.name for one in tools}

    async def run(call: dict[str, str]) -> ToolMessage:
        name, parsed = call["name"], tool_call(call)
        if name in known and parsed is not None:
            result: ToolMessage = (await node.ainvoke([parsed]))["messages"][0]
            return result
        content = tool_error("bad_arguments" if name in known else "unknown_tool")
        return ToolMessage(content, name=name, tool_call_id=call["id"], status="error")

    results: list[AnyMessage] = []
    async with asyncio.TaskGroup() as group:
        for task in [group.create_task(run(call)) for call in calls]:
            results.append(result := await task)
            if report is not None:
                report(result)
    return results


# The stream of a request


def send(runtime: Runtime[Context], event: msgspec.Struct) -> None:
    """Stream an event of the flow, as JSON: custom parts of a graph's stream are no objects."""
    runtime.stream_writer(msgspec.to_builtins(event))


def stack_of(
    graph: TapedGraph,
    events: Any,
    text: Callable[[str], Any] | None = None,
    config: Callable[[Any], Awaitable[RunnableConfig]] | None = None,
) -> Callable[[Request[Any, Any]], AsyncGenerator[Any, None]]:
    """Return a stack that runs a graph and yields a flow's `events`, a union.

    `text` makes the event of a piece of the model's text; all else was sent as an event. `config`
    makes what LangGraph runs a request with.
    """

    def read(part: Any) -> Iterable[Any]:
        if not isinstance(part, BaseMessage):
            return [msgspec.convert(part, events)]
        if text is None or not isinstance(part, AIMessageChunk) or not part.content:
            return []
        return [text(str(part.content))]

    return lambda request: streamed(graph, request, read, config)


async def answer(question_id: str) -> Any:
    """Return a person's answer to a graph's question; raises `Paused` while there is none."""
    return msgspec.to_builtins(await pauses.answer(question_id))


async def streamed(
    graph: TapedGraph,
    request: Request[Any, Any],
    events: Callable[[Any], Iterable[Event]],
    config: Callable[[Any], Awaitable[RunnableConfig]] | None = None,
) -> AsyncGenerator[Event, None]:
    """Run a graph for a request, and yield the events of what it streams.

    `events` takes a message, what a node writes, or the value of an interrupt.
    """
    stream = graph.astream(
        msgspec.to_builtins(request.body),
        None if config is None else await config(request),
        context=Context(msgspec.to_builtins(request.options)),
        stream_mode=["messages", "custom", "updates"],
    )
    async with aclosing(stream) as parts:
        async for mode, part in parts:
            match mode:
                case "messages":
                    found = part[:1]
                case "updates":
                    found = [interrupt.value for interrupt in part.get("__interrupt__", ())]
                case _:
                    found = [part]
            for one in found:
                for event in events(one):
                    yield event
