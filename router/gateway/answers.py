"""Answers as a client of the gateway gets them: the provider's own events, or made from chunks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from contract.model import Chunk, RawChunk, ToolCallDelta
from effects.model.chunks import CallIndexes, mend, tool_call_delta
from effects.model.shapes import UNFINISHED


def decode_event(data: bytes) -> dict[str, Any]:
    """Return an event's data, {} where it is no object.

    A token may end inside a character: strict decoders refuse such an event, and lose the rest of
    it. Halves stand as in `effects.model.chunks`.
    """
    try:
        try:
            event = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            event = json.loads(data.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


DONE: Final = b"data: [DONE]\n\n"

_ENCODER: Final = msgspec.json.Encoder()


class Writer:
    """Writes the chunks of one answer as events' data; `usage` where the client asked for it.

    It is `empty` until the first chunk.
    """

    def __init__(self, answer_id: str, created: int, model: str, *, usage: bool) -> None:
        self._head = {"id": answer_id, "object": "chat.completion.chunk", "created": created}
        self._model = model
        self._usage = usage
        self._began = False
        self.empty = True

    def write(self, chunk: Chunk) -> list[bytes]:
        """Return the data of the events that carry a chunk."""
        self.empty = False
        self._model = chunk.model or self._model
        if isinstance(chunk, RawChunk) and chunk.raw:
            self._began = True
            return [data for data in chunk.raw if self._usage or not _only_usage(data)]
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
            usage = msgspec.structs.asdict(chunk.usage)
            events.append({**self._event([]), "usage": usage})
        return events

    def _event(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._head, "model": self._model, "choices": choices}


def frame_event(data: bytes) -> bytes:
    """Return data as an event; a line end inside it begins another line of data."""
    return b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"


_NO_CHOICES: Final = re.compile(rb'"choices"\s*:\s*(?:\[\s*\]|null)')


def _only_usage(data: bytes) -> bool:
    """Whether an event holds the usage alone; a provider may repeat it, which no chunk shows."""
    # Most events hold `"usage": null`: those with a choice are not decoded again.
    if b'"usage"' not in data or (b'"choices"' in data and not _NO_CHOICES.search(data)):
        return False
    event = decode_event(data)
    return bool(event.get("usage")) and not event.get("choices")


def _delta(chunk: Chunk) -> dict[str, Any]:
    delta = dict(chunk.other)
    if chunk.reasoning and not chunk.other:
        delta[chunk.field or "reasoning_content"] = chunk.reasoning
    if chunk.text and not chunk.other:
        delta[chunk.field or "content"] = chunk.text
    if chunk.tool_calls:
        delta["tool_calls"] = [_call_delta(one) for one in chunk.tool_calls]
    return delta


def _call_delta(delta: ToolCallDelta) -> dict[str, Any]:
    function = {"arguments": delta.arguments}
    if not delta.id and not delta.name:
        return {"index": delta.index, "function": function}
    opening = {"name": delta.name, **function}
    return {"index": delta.index, "id": delta.id, "type": "function", "function": opening}


_WHOLE: Final = frozenset({"role", "type", "id", "name", "index"})
"""Texts that are never split; some providers repeat them with every event, or leave them empty."""
_PARTS: Final = frozenset({"content", "thinking"})
"""Lists of parts, of which neighbours of one type are pieces of one; or texts."""


class WholeAnswer:
    """Joins the data of a stream's events into one `chat.completion`."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._choice: dict[str, Any] = {"index": 0, "finish_reason": None}
        self._message: dict[str, Any] = {}
        self._calls = CallIndexes()

    def take(self, events: Iterable[bytes]) -> None:
        """Add the data of events; data that is no chunk is ignored."""
        for event in map(decode_event, events):
            choices = event.pop("choices", None)
            self._head.update({name: value for name, value in event.items() if value is not None})
            for choice in choices if isinstance(choices, list) else ():
                if isinstance(choice, dict) and not choice.get("index"):
                    delta = choice.pop("delta", None)
                    if isinstance(delta, dict):
                        self._number(delta.get("tool_calls"))
                        _merge(self._message, delta)
                    _merge(self._choice, choice)

    def _number(self, pieces: Any) -> None:
        """Number pieces of tool calls by the call they belong to: providers may send 0 for all."""
        for piece in pieces if isinstance(pieces, list) else ():
            if isinstance(piece, dict):
                piece["index"] = tool_call_delta(piece, self._calls).index

    def body(self) -> bytes:
        """Return the answer so far."""
        message = {"role": "assistant", "content": None, **self._message}
        # Some providers send null in every delta.
        if isinstance(calls := message.get("tool_calls"), list):
            message["tool_calls"] = [_whole_call(one) for one in calls if isinstance(one, dict)]
        choice = {**self._choice, "message": message}
        groq = self._head.get("x_groq")
        if isinstance(groq, dict) and "usage" in groq:  # in its whole answers it stands as usual
            self._head.setdefault("usage", groq["usage"])
        answer = {**self._head, "object": "chat.completion", "choices": [choice]}
        try:
            return msgspec.json.encode(answer)
        except UnicodeEncodeError:  # halves that have met are one character again
            return mend(json.dumps(answer, ensure_ascii=False)).encode()


def _whole_call(call: dict[str, Any]) -> dict[str, Any]:
    """Return a tool call as a whole answer has it: without its index, with arguments."""
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments") or ""
    if isinstance(arguments, dict):  # as some servers send them
        arguments = json.dumps(arguments)
    whole = {**call, "function": {**function, "arguments": arguments}}
    whole.pop("index", None)
    return whole


def _merge(into: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a delta: texts and lists grow, anything else is replaced."""
    for name, value in delta.items():
        known = into.get(name)
        if value is None:
            into.setdefault(name, None)
        elif name == "finish_reason" and isinstance(value, str):
            into[name] = known if value in UNFINISHED else value
        elif isinstance(value, str) and isinstance(known, str):
            into[name] = (known or value) if name in _WHOLE else known + value
        elif isinstance(value, dict) and isinstance(known, dict):
            _merge(known, value)
        elif name in _PARTS and (isinstance(value, list) or isinstance(known, list)):
            into[name] = _joined(_parts(known), _parts(value), parts=True)
        elif isinstance(value, list):
            into[name] = _joined(known if isinstance(known, list) else [], value)
        else:
            into[name] = value


def _parts(content: Any) -> list[Any]:
    """Return a content as the list of its parts."""
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []


def _joined(known: list[Any], more: list[Any], *, parts: bool = False) -> list[Any]:
    """Join lists; elements with an index are pieces of the element of that index."""
    for piece in more:
        index = _index(piece)
        same = next((one for one in known if index is not None and _index(one) == index), None)
        if parts and index is None and known and _type(known[-1]) == _type(piece) != "":
            same = known[-1]
        if same is None:
            known.append(piece)
        else:
            _merge(same, piece)
    return known


def _index(piece: Any) -> Any:
    return piece.get("index") if isinstance(piece, dict) else None


def _type(part: Any) -> Any:
    """Return the type of a part that comes in pieces, "" for any other."""
    name = part.get("type") if isinstance(part, dict) else ""
    return name if name in {"text", "thinking"} else ""
