"""Shapes of the messages a model is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.model import AssistantMessage, SystemMessage, ToolMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contract.conversations import Turn
    from contract.model import Message
    from contract.tools import ToolCall, ToolResult


def said(turn: Turn) -> Message:
    """Turn a stored turn into a message: a user's text carries the name of who said it."""
    if turn.role == "assistant":
        return AssistantMessage(turn.content)
    if turn.user_name:
        return UserMessage(f"[{turn.user_name}]: {turn.content}")
    return UserMessage(turn.content)


def conversation(system: str, history: Iterable[Turn], current: Turn) -> tuple[Message, ...]:
    """Lay out a conversation: system prompt, earlier turns, the current one."""
    return (SystemMessage(system), *map(said, history), said(current))


def tool_round(text: str, calls: tuple[ToolCall, ...]) -> AssistantMessage:
    """Say what the model said when it called tools; no text is null, not an empty string."""
    return AssistantMessage(text or None, calls)


def tool_answer(call: ToolCall, result: ToolResult) -> ToolMessage:
    """Tell the model what a tool answered."""
    content = result.content if result.error is None else f"Error: {result.error}"
    return ToolMessage(call.id, content)
