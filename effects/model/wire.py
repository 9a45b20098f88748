"""One event of a provider's stream, decoded and turned into a chunk.

Structure is typed, leaves are not: what providers put into a leaf differs, and one odd leaf must
not cost the chunk. Fields nobody asked for are skipped without being built.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from contract.model import Chunk, ToolCallDelta, Usage
from effects.model.halves import REPLACEMENT, mended


class WireDelta(msgspec.Struct):
    """What a choice adds."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None


class WireChoice(msgspec.Struct):
    """One of the answers asked for; we ask for one."""

    index: Any = None
    delta: WireDelta | None = None
    finish_reason: Any = None
    error: Any = None


class WireChunk(msgspec.Struct):
    """A `chat.completion.chunk`, or an error in its place."""

    choices: list[WireChoice] | None = None
    model: Any = None
    usage: Any = None
    error: Any = None

    @property
    def choice(self) -> WireChoice | None:
        """The choice of index 0; a choice without an index counts as that."""
        for choice in self.choices or ():
            if not choice.index:
                return choice
        return None


class Halved(WireChunk):
    """A chunk whose texts may hold halves of characters (`effects.model.halves`)."""


class _OnlyError(msgspec.Struct):
    error: Any


_MOST_TOKENS: Final = 2**31 - 1
_DECODER: Final = msgspec.json.Decoder(WireChunk)
_ERROR_DECODER: Final = msgspec.json.Decoder(_OnlyError)


class CallIndexes:
    """Finds the index of a tool-call delta that comes without one."""

    __slots__ = ("_by_id", "_last", "_next")

    def __init__(self) -> None:
        self._by_id: dict[str, int] = {}
        self._last = 0
        self._next = 0

    def of(self, index: object, call_id: str) -> int:
        """Return the given index; else the one of that id, a fresh one for a new id, the last."""
        if type(index) is int:  # `true` is none, and could not be read from a tape again
            found = index
        elif call_id:
            found = self._by_id.get(call_id, self._next)
        else:
            found = self._last
        if call_id:
            self._by_id.setdefault(call_id, found)
        self._last = found
        self._next = max(self._next, found + 1)
        return found


def decode(data: bytes) -> WireChunk | None:
    """Decode an event's data; None when it is not a chunk at all."""
    try:
        return _DECODER.decode(data)
    except RecursionError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _mended(data)


def chunk_of(wire: WireChunk, calls: CallIndexes, known_model: str = "") -> Chunk:
    """Translate; the chunk is empty when the event carries nothing that is kept.

    The model's name is left out when it is the one known already.
    """
    choice = wire.choice
    text = reasoning = finish = ""
    deltas: tuple[ToolCallDelta, ...] = ()
    if choice is not None:
        if choice.finish_reason is not None:
            finish = _text(choice.finish_reason)
        if (delta := choice.delta) is not None:
            text, reasoning = _said(delta)
            text = text.replace("\0", REPLACEMENT)  # no store keeps it: the answer would be lost
            if delta.tool_calls:
                deltas = _deltas(delta.tool_calls, calls)
    usage = _usage(wire.usage) if wire.usage else None
    model = "" if wire.model == known_model else _text(wire.model)
    return Chunk(0, text, reasoning, deltas, finish, usage, model)


def _mended(data: bytes) -> WireChunk | None:
    # Strict decoders refuse half an emoji, written as a lone surrogate, and bytes that are no
    # UTF-8: both come from models cut at a token's end.
    try:
        value = json.loads(data.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None
    text = mended(json.dumps(value, ensure_ascii=False))
    try:
        wire = _DECODER.decode(text)
    except msgspec.DecodeError:
        return _error_alone(text)
    if wire.error or (wire.choice is not None and wire.choice.error):
        return wire
    return msgspec.convert(value, Halved)


def _error_alone(text: str) -> WireChunk | None:
    try:
        return WireChunk(error=_ERROR_DECODER.decode(text).error)
    except msgspec.DecodeError:
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _said(delta: WireDelta) -> tuple[str, str]:
    """Return text and reasoning; a gateway may repeat the reasoning under its other name."""
    text, thought = _texts(delta.content)
    if delta.reasoning_content is None and delta.reasoning is None:
        return text, thought
    return text, _text(delta.reasoning_content) or _text(delta.reasoning) or thought


def _texts(content: object) -> tuple[str, str]:
    """Return text and reasoning of a content, which may be a list of parts."""
    if isinstance(content, str):
        return content, ""
    text = reasoning = ""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict):
            text += _text(part.get("text"))
            reasoning += _thought(part.get("thinking"))
    return text, reasoning


def _thought(thinking: object) -> str:
    return thinking if isinstance(thinking, str) else _texts(thinking)[0]


def _deltas(listed: object, calls: CallIndexes) -> tuple[ToolCallDelta, ...]:
    deltas = listed if isinstance(listed, list) else []
    return tuple(_delta(delta, calls) for delta in deltas if isinstance(delta, dict))


def _delta(delta: dict[str, object], calls: CallIndexes) -> ToolCallDelta:
    function = delta.get("function")
    fields = function if isinstance(function, dict) else {}
    call_id = _text(delta.get("id"))
    index = calls.of(delta.get("index"), call_id)
    return ToolCallDelta(index, call_id, _text(fields.get("name")), _arguments(fields))


def _arguments(fields: dict[str, object]) -> str:
    arguments = fields.get("arguments")
    # Some servers send the object itself instead of its text.
    return json.dumps(arguments) if isinstance(arguments, dict) else _text(arguments)


def _usage(usage: object) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    prompt, completion, total = (
        _count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    )
    return Usage(prompt, completion, total or prompt + completion)


def _count(value: object) -> int:
    """Read a count of tokens; what cannot be one is none: sums and counters have to bear it."""
    count = int(value) if isinstance(value, int | float) else 0
    return count if 0 <= count <= _MOST_TOKENS else 0
