"""What both stacks hold of models: how much one is shown, and what of its answer counts.

What cannot be read of an answer is a failure, never a gap.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

CHAT_HISTORY: Final = 20
"""Earlier messages of a conversation that a chat shows its model at most."""
HISTORY: Final = 100
"""The same for the other flows."""

MOST_ITERATIONS: Final = 10
"""Rounds of tools in flows without an option for it; then one last call with no tool allowed."""

_ASCII_PER_TOKEN: Final = 4


class Content(Protocol):
    """A stored turn, or a message: what it says counts."""

    @property
    def content(self) -> object:
        """Its text."""


T = TypeVar("T", bound=Content)


def estimate(text: str) -> int:
    """Return an estimate of tokens: four ASCII characters make one, any other makes one itself."""
    ascii_count = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
    return len(text) - ascii_count - (-ascii_count // _ASCII_PER_TOKEN)


def window(turns: Sequence[T], budget: int, most: int = HISTORY) -> tuple[T, ...]:
    """Return the newest `most` turns at most that fit into a budget of estimated tokens.

    Oldest first; the first turn that does not fit ends the window, so that none is left out within.
    """
    kept: list[T] = []
    for turn in reversed(turns[-most:] if most else ()):
        budget -= estimate(str(turn.content))
        if budget < 0:
            break
        kept.append(turn)
    return tuple(reversed(kept))


def runs_tools(finish: str, calls: int) -> bool:
    """Return whether tools run that an answer calls: under any other reason, stacks log them."""
    return calls > 0 and finish == "tool_calls"


BROKEN_REASONS: Final = frozenset(
    {"error", "network_error", "insufficient_system_resource", "abort"}
)
"""Finish reasons of answers that the provider broke off (OpenRouter, Zhipu, DeepSeek, SGLang)."""
WORDLESS_REASONS: Final = frozenset({"length", "content_filter"})
"""Finish reasons of answers that may hold nothing at all."""

MESSAGE_FIELDS: Final = (
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "thinking_blocks",
    "provider_specific_fields",
    "reasoning_opaque",
    "extra_content",
    "thought_signature",
)
"""Fields of a message that stacks send back as they came, within the round of tools.

Some providers answer 400 where their reasoning does not come back.
"""
CALL_FIELDS: Final = ("extra_content", "thought_signature")
"""The same of a tool call, such as Gemini's signatures."""
REASONING: Final = ("reasoning_content", "reasoning")
"""Names under which a delta carries text of the model's reasoning, the first that is there."""


class _Whole(msgspec.Struct):
    """Refuses half of a character in a text: it cannot be passed on."""

    def __post_init__(self) -> None:
        for text in msgspec.structs.astuple(self):
            if isinstance(text, str) and not text.isascii():
                text.encode()


class _Function(_Whole):
    name: str | None = None
    arguments: str | None = None


class _Call(_Whole):
    id: str | None = None
    function: _Function | None = None


class _Delta(_Whole):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None
    text: Any = None
    message: Any = None

    def __post_init__(self) -> None:
        if self.finish_reason in BROKEN_REASONS:
            message = f"the provider broke off: {self.finish_reason!r}"
            raise ValueError(message)
        if self.delta is None and (self.text or self.message):
            message = "a choice has its text beside where a delta is due"
            raise ValueError(message)


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None


def check_chunk(chunk: object) -> None:
    """Raise `ValueError` for a chunk (a mapping, or an SDK's object) that would lose words.

    What stands beside the known fields is free: providers add their own.
    """
    msgspec.convert(chunk, _Chunk, from_attributes=True)
