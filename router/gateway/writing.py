"""Chunks as a client of the gateway gets them: the provider's own events, made up where cut."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from contract.model import Chunk, RawChunk, ToolCallDelta, Usage
from router.gateway.said import said_in

DONE: Final = b"data: [DONE]\n\n"

_ENCODER: Final = msgspec.json.Encoder()


class Writer:
    """Writes the chunks of one answer as events' data; `usage` where the client asked for it."""

    def __init__(self, answer_id: str, created: int, model: str, *, usage: bool) -> None:
        self._head = {"id": answer_id, "object": "chat.completion.chunk", "created": created}
        self._model = model
        self._usage = usage
        self._began = False

    def write(self, chunk: Chunk) -> list[bytes]:
        """Return the data of the events that carry a chunk."""
        self._model = chunk.model or self._model
        if isinstance(chunk, RawChunk) and chunk.raw:
            self._began = True
            return [data for data in chunk.raw if self._usage or not _only_usage(chunk, data)]
        return [_ENCODER.encode(event) for event in self._made_up(chunk)]

    def _made_up(self, chunk: Chunk) -> list[dict[str, Any]]:
        events = []
        delta = _delta(chunk)
        if delta or chunk.finish:
            if not self._began:
                delta = {"role": "assistant", **delta}
                self._began = True
            choice = {"index": 0, "delta": delta, "finish_reason": chunk.finish or None}
            events.append(self._event([choice]))
        if chunk.usage is not None and self._usage:
            events.append({**self._event([]), "usage": _usage(chunk.usage)})
        return events

    def _event(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._head, "model": self._model, "choices": choices}


def event(data: bytes) -> bytes:
    """Frame data as an event; a line end inside it begins another line of data."""
    return b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"


def _only_usage(chunk: Chunk, data: bytes) -> bool:
    if chunk.usage is None:
        return False
    said = said_in(data)
    return bool(said.get("usage")) and not said.get("choices")


def _delta(chunk: Chunk) -> dict[str, Any]:
    delta: dict[str, Any] = {}
    if chunk.reasoning:
        delta["reasoning_content"] = chunk.reasoning
    if chunk.text:
        delta["content"] = chunk.text
    if chunk.tool_calls:
        delta["tool_calls"] = [_call(one) for one in chunk.tool_calls]
    return delta


def _call(delta: ToolCallDelta) -> dict[str, Any]:
    function = {"arguments": delta.arguments}
    if not delta.id and not delta.name:
        return {"index": delta.index, "function": function}
    opening = {"name": delta.name, **function}
    return {"index": delta.index, "id": delta.id, "type": "function", "function": opening}


def _usage(usage: Usage) -> dict[str, int]:
    return msgspec.structs.asdict(usage)
