"""Reading one answer of a model: its text, its end, and the tools it calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from contract.model import AssistantMessage, Usage
from rules.tool_calls import ToolCallAssembly

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contract.model import Chunk, Message, ModelCall
    from contract.tools import ToolCall

EARLY_ENDINGS: Final = frozenset({"content_filter", "length"})
"""Finish reasons after which a round's tool calls, cut short, are not run."""


class Answer:
    """An answer as it comes, chunk by chunk."""

    __slots__ = ("_assembly", "finish", "text", "usage")

    def __init__(self) -> None:
        self.text = ""
        self.finish = ""
        self.usage = Usage()
        self._assembly = ToolCallAssembly()

    def add(self, chunk: Chunk) -> str:
        """Take a chunk in; gives its text."""
        if chunk.finish:
            self.finish = chunk.finish
        if chunk.usage is not None:
            self.usage += chunk.usage
        if chunk.tool_calls:
            self._assembly.add(chunk.tool_calls)
        self.text += chunk.text
        return chunk.text

    def calls(self, asked: ModelCall) -> tuple[ToolCall, ...]:
        """Give the calls of the whole answer to a question; none that it may not make."""
        if asked.tool_choice != "auto" or self.finish in EARLY_ENDINGS:
            return ()
        rounds = rounds_of(asked.messages)
        return self._assembly.calls(len(rounds), {call.id for calls in rounds for call in calls})


def rounds_of(messages: Iterable[Message]) -> list[tuple[ToolCall, ...]]:
    """Give the calls of each round of tools so far."""
    said = (message for message in messages if isinstance(message, AssistantMessage))
    return [message.tool_calls for message in said if message.tool_calls]
