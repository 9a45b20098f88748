"""Contract structs as plain values: what a graph's state, and a checkpoint, can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from contract.model import AssistantMessage, Message, ModelCall, ToolCall, ToolSpec
from rules import model_calls
from rules.answers import rounds_of
from rules.model_calls import ModelParameters

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
