"""Contract structs as plain values: what a graph's state, and a checkpoint, can hold."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from contract.errors import EffectFailed
from contract.model import AssistantMessage, Message, ModelCall, ToolCall, ToolSpec
from contract.ports import Effects
from rules import model_calls
from rules.answers import rounds_of
from rules.model_calls import ModelParameters, check_limits, unknown_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from contextlib import AbstractAsyncContextManager

    from contract.model import ToolCall, ToolResult


Plain = dict[str, Any]
"""A struct as plain values."""


def plain_tool(offered: ToolSpec) -> Plain:
    """Turn an offered tool into plain values."""
    return {
        "name": offered.name,
        "description": offered.description,
        "parameters": bytes(offered.parameters).decode(),
    }


def question(
    asking: ModelParameters, messages: Sequence[Plain], tools: Sequence[Plain], *, rounds: int
) -> ModelCall:
    """Build the next question to the model; after so many rounds of tools, it may call none."""
    so_far = msgspec.convert({"messages": messages}, _Messages).messages
    last = len(rounds_of(so_far)) >= rounds
    return model_calls.question(asking, so_far, tuple(map(_tool, tools)), last=last)


def calls_of(message: Plain) -> tuple[ToolCall, ...]:
    """Give the calls of the message that begins a round of tools."""
    return msgspec.convert(message, AssistantMessage).tool_calls


class _Messages(msgspec.Struct):
    """Messages, typed: what a struct's types mean is worked out once."""

    messages: tuple[Message, ...]


def _tool(plain: Plain) -> ToolSpec:
    parameters = msgspec.Raw(plain["parameters"].encode())
    return ToolSpec(plain["name"], plain["description"], parameters)


Got = TypeVar("Got")


@asynccontextmanager
async def beside(*work: Coroutine[Any, Any, Got]) -> AsyncIterator[list[asyncio.Task[Got]]]:
    """Start what is done meanwhile; whoever leaves early leaves none of it behind."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def started(
    effects: Effects, calls: tuple[ToolCall, ...]
) -> AbstractAsyncContextManager[list[asyncio.Task[ToolResult]]]:
    """Start every call of a round."""
    return beside(*[effects.tools.run("tool", call) for call in calls])


async def check_model(effects: Effects, model_id: str, max_tokens: int | None) -> None:
    """Refuse a model nobody registered, and what it cannot do; raises `Refused`."""
    try:
        info = await effects.model.lookup("model", model_id)
    except EffectFailed as failure:
        if failure.fault.code == "unknown_model":
            raise unknown_model(model_id) from failure
        raise
    check_limits(max_tokens, info)
