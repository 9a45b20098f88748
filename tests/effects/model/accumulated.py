"""What a stream amounts to: as our chunks say it, and as the SDK's own parser says it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import openai
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionChunk

from contract.errors import EffectFailed
from contract.model import Chunk, Usage


@dataclass
class Accumulated:
    """A whole answer; `calls` maps an index to id, name and arguments."""

    text: str = ""
    reasoning: str = ""
    calls: dict[int, list[str]] = field(default_factory=dict)
    finish: str = ""
    usage: Usage | None = None
    model: str = ""
    failed: bool = False

    def add_call(self, index: int, call_id: str, name: str, arguments: str) -> None:
        """Add a piece of a tool call."""
        call = self.calls.setdefault(index, ["", "", ""])
        call[0] = call[0] or call_id
        call[1] += name
        call[2] += arguments


async def of_ours(chunks: AsyncIterator[Chunk]) -> Accumulated:
    """Add up a stream of the port; a fault ends it."""
    sum_ = Accumulated()
    try:
        async for chunk in chunks:
            add([chunk], sum_)
    except EffectFailed:
        sum_.failed = True
    return sum_


def add(chunks: Iterable[Chunk], sum_: Accumulated) -> Accumulated:
    """Add chunks."""
    for chunk in chunks:
        sum_.text += chunk.text
        sum_.reasoning += chunk.reasoning
        for call in chunk.tool_calls:
            sum_.add_call(call.index, call.id, call.name, call.arguments)
        sum_.finish = chunk.finish or sum_.finish
        sum_.usage = chunk.usage or sum_.usage
        sum_.model = chunk.model or sum_.model
    return sum_


async def of_the_sdk(chunks: AsyncIterator[ChatCompletionChunk]) -> Accumulated:
    """Add up what the SDK parsed; an `APIError` ends it."""
    sum_ = Accumulated()
    try:
        async for chunk in chunks:
            _add_parsed(chunk, sum_)
    except openai.APIError:
        sum_.failed = True
    return sum_


def _add_parsed(chunk: ChatCompletionChunk, sum_: Accumulated) -> None:
    sum_.model = chunk.model or sum_.model
    usage = chunk.usage
    by_groq = (chunk.model_extra or {}).get("x_groq") or {}
    if usage is None and "usage" in by_groq:  # a field of its own, which the SDK has no name for
        usage = CompletionUsage.model_validate(by_groq["usage"])
    if usage is not None:
        sum_.usage = Usage(usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)
    for choice in chunk.choices[:1]:
        sum_.finish = choice.finish_reason or sum_.finish
        _add_content(choice.delta.content, sum_)
        extra = choice.delta.model_extra or {}
        sum_.reasoning += extra.get("reasoning_content") or extra.get("reasoning") or ""
        for call in choice.delta.tool_calls or ():
            function = call.function
            name, arguments = (function.name, function.arguments) if function else ("", "")
            sum_.add_call(call.index, call.id or "", name or "", arguments or "")


def _add_content(content: Any, sum_: Accumulated) -> None:
    """Add a content, which one provider sends as parts of text and of thinking."""
    parts: list[dict[str, Any]] = content if isinstance(content, list) else [{"text": content}]
    for part in parts:
        sum_.text += part.get("text") or ""
        sum_.reasoning += "".join(thought["text"] for thought in part.get("thinking", []))
