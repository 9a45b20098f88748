"""Shapes of the messages a model is sent."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, Protocol

from msgspec.structs import replace

from contract.errors import Refused
from contract.model import (
    AssistantMessage,
    Message,
    ModelCall,
    ModelInfo,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from contract.stores import Turn

NO_NAME: Final = "invalid_tool_name"
"""Stands for a name that a model made up and no provider takes back."""

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def said(turn: Turn) -> Message:
    """Turn a stored turn into a message: a user's text carries the name of who said it."""
    if turn.role == "assistant":
        return AssistantMessage(turn.content)
    if turn.user_name:
        return UserMessage(f"[{turn.user_name}]: {turn.content}")
    return UserMessage(turn.content)


def prompt_messages(system: str, history: Iterable[Turn], current: Turn) -> tuple[Message, ...]:
    """Lay out a conversation: system prompt, earlier turns, the current one."""
    return (SystemMessage(system), *map(said, history), said(current))


def tool_round(text: str, calls: tuple[ToolCall, ...]) -> AssistantMessage:
    """Say what the model said when it called tools; no text is null, not an empty string."""
    return AssistantMessage(text or None, calls)


def tool_answer(call: ToolCall, result: ToolResult) -> ToolMessage:
    """Tell the model what a tool answered."""
    content = result.content if result.error is None else f"Error: {result.error}"
    return ToolMessage(call.id, content)


def acceptable(messages: tuple[Message, ...], offered: Collection[str]) -> tuple[Message, ...]:
    """Give messages as providers take them back: they refuse some of what their models have said.

    A reply without text is left out; a call's name that is none, and was not `offered`, is replaced
    by `NO_NAME`. The call is run, and shown, by the name it was made with.
    """
    if not any(_refused(message, offered) for message in messages):
        return messages
    return tuple(_named(message, offered) for message in messages if not _blank(message))


def _refused(message: Message, offered: Collection[str]) -> bool:
    if not isinstance(message, AssistantMessage):
        return False
    return _blank(message) or any(_nameless(call, offered) for call in message.tool_calls)


def _blank(message: Message) -> bool:
    if not isinstance(message, AssistantMessage) or message.tool_calls:
        return False
    return not (message.content and message.content.strip())


def _nameless(call: ToolCall, offered: Collection[str]) -> bool:
    return _NAME.fullmatch(call.name) is None and call.name not in offered


def _named(message: Message, offered: Collection[str]) -> Message:
    if not isinstance(message, AssistantMessage) or not message.tool_calls:
        return message
    calls = (
        replace(call, name=NO_NAME) if _nameless(call, offered) else call
        for call in message.tool_calls
    )
    return replace(message, tool_calls=tuple(calls))


class ModelParameters(Protocol):
    """How a flow asks its model; no `max_tokens`, or 0 of them, are the model's own limit."""

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


def unknown_model(model_id: str) -> Refused:
    """Refuse a model nobody registered."""
    return Refused(422, "unknown_model", f"no model {model_id!r} is registered")


def check_limits(max_tokens: int | None, info: ModelInfo) -> None:
    """Refuse what the model cannot do."""
    if max_tokens is not None and max_tokens > info.max_output_tokens:
        raise Refused(
            422, "max_tokens_too_large", f"at most {info.max_output_tokens} tokens with this model"
        )


def question(
    asking: ModelParameters,
    messages: tuple[Message, ...],
    tools: tuple[ToolSpec, ...],
    *,
    last: bool,
) -> ModelCall:
    """Build a question to the model; the `last` one may not call tools."""
    return ModelCall(
        model_id=asking.model_id,
        messages=acceptable(messages, {tool.name for tool in tools}),
        temperature=asking.temperature,
        max_tokens=asking.max_tokens or None,
        tools=tools,
        tool_choice=("none" if last else "auto") if tools else None,
    )
