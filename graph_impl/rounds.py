"""What the nodes of every flow share: plain values, one answer of the model, a round of tools."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from operator import add
from typing import Annotated, Any, Protocol, TypedDict

import msgspec

from contract.errors import EffectFailed
from contract.flow import Event
from contract.model import (
    AssistantMessage,
    Message,
    ModelCall,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from contract.ports import Effects
from contract.stores import MemoryEntry, Recall
from graph_impl.engine import RunContext
from rules import conversation
from rules.conversation import ModelAnswer, rounds_of, tool_round

log = logging.getLogger(__name__)

Plain = dict[str, Any]
"""A struct as plain values: what a graph's state, and a checkpoint, can hold."""


class RoundParameters(conversation.ModelParameters, Protocol):
    """How a flow calls its model, round by round."""

    @property
    def max_tool_iterations(self) -> int:
        """Rounds of tools, at most."""
        ...


def total(usage: Plain, more: Plain) -> Plain:
    """Add token counts by name."""
    return {name: usage.get(name, 0) + count for name, count in more.items()}


class RoundState(TypedDict, total=False):
    """What rounds of model and tools pass on: prompt, text and usage so far, and the tools."""

    prompt: Annotated[list[Plain], add]
    tools: list[Plain]
    text: Annotated[str, add]
    usage: Annotated[Plain, total]


class _Messages(msgspec.Struct):
    """Typed messages: a struct's types are resolved once, a tuple's at every conversion."""

    messages: tuple[Message, ...]


def plain(value: object) -> Any:
    """Turn structs into plain values; JSON not yet read becomes a text."""
    return msgspec.to_builtins(value, enc_hook=lambda raw: bytes(raw).decode())


def plains(values: Iterable[object]) -> list[Plain]:
    """Turn each struct into plain values."""
    return [plain(value) for value in values]


def messages_of(messages: Sequence[Plain]) -> tuple[Message, ...]:
    """Turn plain values into messages."""
    return msgspec.convert({"messages": messages}, _Messages).messages


def model_call(
    parameters: RoundParameters, messages: Sequence[Plain], tools: Sequence[Plain]
) -> ModelCall:
    """Build the next call of the model; after the last round of tools it may call none."""
    typed = messages_of(messages)
    last = len(rounds_of(typed)) >= parameters.max_tool_iterations
    return conversation.question(parameters, typed, tuple(map(_tool, tools)), last=last)


def _tool(tool: Plain) -> ToolSpec:
    return ToolSpec(**{**tool, "parameters": msgspec.Raw(tool["parameters"].encode())})


def calls_of(messages: Sequence[Plain]) -> tuple[ToolCall, ...]:
    """Return the tool calls of the last message; none unless it begins a round of tools."""
    if not messages or messages[-1]["role"] != "assistant":
        return ()
    return msgspec.convert(messages[-1], AssistantMessage).tool_calls


async def open_round(
    state: RoundState,
    context: RunContext,
    site: str,
    parameters: RoundParameters,
    *,
    lay_out: Callable[[], Awaitable[conversation.Layout]],
    event: Callable[[str], Event],
) -> tuple[ModelAnswer, RoundState | None]:
    """Call the model once, sending its text as events on the way.

    Returns the answer, and the update that begins a round of tools; None after the last answer.
    `lay_out` returns the prompt and the tools of the first call.
    """
    first, known = not state["prompt"], state
    if first:
        messages, tools = await lay_out()
        known = {"prompt": plains(messages), "tools": plains(tools)}
    call, answer = model_call(parameters, known["prompt"], known["tools"]), ModelAnswer()
    async for chunk in context.effects.model.stream(site, call):
        if text := answer.add(chunk):
            await context.sink.push(event(text))
    await context.sink.drained()
    calls = answer.calls(call)
    if not calls:
        return answer, None
    opening = [plain(tool_round(answer.text, calls))]
    prompt = [*known["prompt"], *opening] if first else opening
    usage = plain(answer.usage)
    return answer, {"prompt": prompt, "tools": known["tools"], "text": answer.text, "usage": usage}


@asynccontextmanager
async def started_tools(
    effects: Effects, calls: Sequence[ToolCall]
) -> AsyncIterator[list[asyncio.Task[ToolResult]]]:
    """Start all calls of a round; none survives the block."""
    tasks = [asyncio.create_task(effects.tools.run("tool", call)) for call in calls]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def recalled(effects: Effects, query: Recall | None) -> tuple[MemoryEntry, ...]:
    """Recall memories; none without a query, and none where recall fails."""
    if query is None:
        return ()
    try:
        return await effects.memory.recall("recall", query)
    except EffectFailed as failure:
        log.warning("nothing is recalled: %s", failure.fault.code)
        return ()


async def attempt_learning(learning: Awaitable[None]) -> None:
    """Await what learns from a conversation; what fails is not learnt."""
    try:
        await learning
    except EffectFailed as failure:
        log.warning("nothing is learnt: %s", failure.fault.code)
