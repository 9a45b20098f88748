"""One answer of a model as it streams in: its text, its end, its tool calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from contract.model import (
    AssistantMessage,
    Chunk,
    Message,
    ModelCall,
    ToolCall,
    Usage,
    as_whole,
)
from contract.ports import Effects

EARLY_ENDINGS: Final = frozenset({"content_filter", "length"})
"""Finish reasons after which a round's tool calls, cut short, are not run."""


class ModelAnswer:
    """An answer as it comes, chunk by chunk; tool calls are put together by their index."""

    __slots__ = ("_pieces", "finish", "text", "usage")

    def __init__(self) -> None:
        self.text = ""
        self.finish = ""
        self.usage = Usage()
        self._pieces: dict[int, list[str]] = {}

    def add(self, chunk: Chunk) -> str:
        """Take a chunk in; return its text.

        Of a tool call the id counts once, name and arguments add up.
        """
        if chunk.finish:
            self.finish = chunk.finish
        if chunk.usage is not None:
            self.usage += chunk.usage
        for delta in chunk.tool_calls:
            piece = self._pieces.setdefault(delta.index, ["", "", ""])
            piece[0] = piece[0] or delta.id
            piece[1] += delta.name
            piece[2] += delta.arguments
        self.text += chunk.text
        return chunk.text

    def calls(self, question: ModelCall) -> tuple[ToolCall, ...]:
        """Return the calls of the whole answer, in index order; none if the question allowed none.

        A missing id, or one of an earlier call, becomes our own.
        """
        if question.tool_choice != "auto" or self.finish in EARLY_ENDINGS:
            return ()
        rounds = rounds_of(question.messages)
        seen = {call.id for calls in rounds for call in calls}
        calls: list[ToolCall] = []
        for index, (call_id, name, arguments) in sorted(self._pieces.items()):
            unique = call_id
            if not call_id or call_id in seen:
                unique = f"call_{len(rounds)}_{index}"
            while unique in seen:  # the model may use our form, too
                unique += "_"
            seen.add(unique)
            calls.append(ToolCall(unique, name, arguments))
        return tuple(calls)


async def read_text(effects: Effects, site: str, call: ModelCall) -> str:
    """Call the model and return the whole text of its answer."""
    answer = effects.model.stream(site, as_whole(call))
    return "".join([chunk.text async for chunk in answer])


def rounds_of(messages: Iterable[Message]) -> list[tuple[ToolCall, ...]]:
    """Return the calls of each round of tools so far."""
    return [
        message.tool_calls
        for message in messages
        if isinstance(message, AssistantMessage) and message.tool_calls
    ]
