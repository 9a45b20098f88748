"""The shape of a streamed answer's chunks, and the fields of theirs that go back to the provider.

What cannot be read is a failure, never a gap.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

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
)
"""Fields of a message that stacks send back as they came, within the round of tools.

Some providers answer 400 where their reasoning does not come back.
"""
CALL_FIELDS: Final = ("extra_content", "thought_signature")
"""The same of a tool call, such as Gemini's signatures."""
REASONING: Final = ("reasoning_content", "reasoning")
"""Names under which a delta carries text of the model's reasoning, the first that is there."""


def _check_whole(*texts: str | None) -> None:
    for text in texts:
        if text and not text.isascii():
            text.encode()  # half of a character cannot be passed on


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None

    def __post_init__(self) -> None:
        _check_whole(self.name, self.arguments)


class _Call(msgspec.Struct):
    id: str | None = None
    function: _Function | None = None

    def __post_init__(self) -> None:
        _check_whole(self.id)


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None

    def __post_init__(self) -> None:
        _check_whole(self.content, self.refusal)


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
