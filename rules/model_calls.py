"""Model calls: the messages of a conversation, as providers accept them, and their limits."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, Protocol

from msgspec.structs import replace

from contract.errors import EffectFailed, Refused
from contract.model import (
    AssistantMessage,
    Message,
    ModelCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from contract.ports import Effects
from contract.stores import Turn

Layout = tuple[tuple[Message, ...], tuple[ToolSpec, ...]]
"""The messages of a conversation, and the tools to offer."""

NO_NAME: Final = "invalid_tool_name"
"""Replaces a name that a model invented and no provider accepts."""

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def message_of(turn: Turn) -> Message:
    """Turn a stored turn into a message; a user's text carries their name."""
    if turn.role == "assistant":
        return AssistantMessage(turn.content)
    if turn.user_name:
        return UserMessage(f"[{turn.user_name}]: {turn.content}")
    return UserMessage(turn.content)


def prompt_messages(system: str, history: Iterable[Turn], current: Turn) -> tuple[Message, ...]:
    """Lay out a conversation: system prompt, earlier turns, the current one."""
    return (SystemMessage(system), *map(message_of, history), message_of(current))


def tool_round(text: str, calls: tuple[ToolCall, ...]) -> AssistantMessage:
    """Build the model's message of a tool round; no text is null, not an empty string."""
    return AssistantMessage(text or None, calls)


def tool_answer(call: ToolCall, result: ToolResult) -> ToolMessage:
    """Build the message with a tool's result."""
    content = result.content if result.error is None else f"Error: {result.error}"
    return ToolMessage(call.id, content)


def acceptable_messages(
    messages: tuple[Message, ...], offered: Collection[str]
) -> tuple[Message, ...]:
    """Return messages as providers accept them: they refuse some that their models have made.

    A reply without text is left out; an invalid name of a call that was not `offered` is replaced
    by `NO_NAME`. The call is run, and shown, by the name it was made with.
    """
    accepted: list[Message] = []
    for message in messages:
        if not isinstance(message, AssistantMessage):
            accepted.append(message)
        elif message.tool_calls:
            calls = [
                call
                if _NAME.fullmatch(call.name) or call.name in offered
                else replace(call, name=NO_NAME)
                for call in message.tool_calls
            ]
            accepted.append(replace(message, tool_calls=tuple(calls)))
        elif message.content and message.content.strip():
            accepted.append(message)
    found = tuple(accepted)
    return messages if found == messages else found


class ModelParameters(Protocol):
    """Parameters of a flow's model call; no `max_tokens`, or 0, is the model's own limit."""

    @property
    def model_id(self) -> str:
        """The model."""
        ...

    @property
    def temperature(self) -> float:
        """From 0 to 2."""
        ...

    @property
    def max_tokens(self) -> int | None:
        """Of one answer."""
        ...


async def check_model(effects: Effects, model_id: str, max_tokens: int | None) -> None:
    """Refuse an unknown model, and more tokens than it can answer; raises `Refused`."""
    try:
        info = await effects.model.lookup("model", model_id)
    except EffectFailed as failure:
        if failure.fault.code == "unknown_model":
            raise Refused(422, "unknown_model", f"no model {model_id!r} is registered") from failure
        raise
    most = info.max_output_tokens
    if max_tokens is not None and max_tokens > most:
        raise Refused(422, "max_tokens_too_large", f"at most {most} tokens with this model")


def question(
    parameters: ModelParameters,
    messages: tuple[Message, ...],
    tools: tuple[ToolSpec, ...],
    *,
    last: bool,
) -> ModelCall:
    """Build a model call; the `last` one of a reply may not call tools."""
    return ModelCall(
        model_id=parameters.model_id,
        messages=acceptable_messages(messages, {tool.name for tool in tools}),
        temperature=parameters.temperature,
        max_tokens=parameters.max_tokens or None,
        tools=tools,
        tool_choice=("none" if last else "auto") if tools else None,
    )
