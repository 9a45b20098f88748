"""The JSON of OpenAI-compatible providers: a call as a request body, an event as a chunk.

Structure is typed, leaves are not: what providers put into a leaf differs, and one odd leaf must
not cost the chunk. Fields that are not used are skipped without being built.

A token may end inside an emoji. Servers then write half a surrogate pair into each of two events,
or the bytes of one UTF-8 character into two JSON strings. Text in which that may be stands here
with lone surrogates: halves of pairs as they were written, U+DC80 to U+DCFF for single bytes.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from contract.model import Chunk, ModelCall, PassedCall, ToolCallDelta, Usage, passed_on
from effects.model.shapes import NO_SPEECH, SPEECH, UNFINISHED

REPLACEMENT: Final = "\ufffd"
"""Stands for what a model wrote that is no text."""
_MAX_TOKENS: Final = 2**31 - 1
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_BYTES: Final = re.compile("[\udc80-\udcff]+")
_LONE: Final = re.compile("[\ud800-\udfff]")
_HIGH: Final = re.compile("[\ud800-\udbff]\\Z")
_LAST_BYTES: Final = re.compile("[\udc80-\udcff]{1,3}\\Z")


_encode: Final = msgspec.json.Encoder().encode


def encode_call(call: ModelCall | PassedCall, model: str) -> bytes:
    """Encode the body of a streamed chat completion; `model` is the provider's name for it."""
    passed = call if isinstance(call, PassedCall) else passed_on(call)
    options = passed.more.get("stream_options") or {}
    if isinstance(options, msgspec.Raw):
        options = msgspec.json.decode(options)
    return _encode(
        {
            "model": model,
            "messages": passed.messages,
            **passed.more,
            "stream": True,
            "stream_options": {**options, "include_usage": True},
        }
    )


class WireDelta(msgspec.Struct):
    """What a choice adds, in the fields that most deltas have; `read_other` reads the others."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None


class WireChoice(msgspec.Struct):
    """One of the answers requested; we request one."""

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
    x_groq: Any = None

    @property
    def choice(self) -> WireChoice | None:
        """The choice of index 0; a choice without an index counts as that."""
        for choice in self.choices or ():
            if not choice.index:
                return choice
        return None


class SplitChunk(WireChunk):
    """A chunk whose texts may hold halves of characters."""


class _OnlyError(msgspec.Struct):
    error: Any


class _OtherChoice(msgspec.Struct):
    index: Any = None
    delta: dict[str, Any] | None = None


class _OtherChunk(msgspec.Struct):
    choices: list[_OtherChoice]


_decode: Final = msgspec.json.Decoder(WireChunk).decode
_decode_other: Final = msgspec.json.Decoder(_OtherChunk).decode


@dataclass(slots=True, eq=False)
class _OpenCall:
    """What is known of a tool call: id and name, and whether its arguments may have ended."""

    id: str
    name: str
    closed: bool = False

    def ends_before(self, call_id: str, name: str, arguments: str) -> bool:
        """Whether a piece under the same index opens another call.

        Only a piece with a name does: vLLM gave each piece of one call an id of its own.
        """
        if not name:
            return False
        if call_id and self.id:
            return call_id != self.id
        return bool(self.name) and (
            name != self.name or (self.closed and arguments.lstrip().startswith("{"))
        )


@dataclass(slots=True, eq=False)
class CallIndexes:
    """Finds the index of each piece of a tool call, whatever index it comes with, if any.

    Gemini and Ollama gave all parallel calls index 0; others give none.
    """

    _calls: dict[int, _OpenCall] = field(default_factory=dict)
    _by_id: dict[str, int] = field(default_factory=dict)
    _given: dict[int, int] = field(default_factory=dict)
    _last: int = 0

    def of(self, index: object, call_id: str, name: str = "", arguments: str = "") -> int:
        """Return the index of the call that a piece belongs to; a piece that opens one a new one.

        That is the given index unless another call has it; without one, that of the id, or of the
        last piece.
        """
        given = index if type(index) is int else None  # `true` is none, nor can a tape hold it
        if given is not None:
            at = self._given.get(given)
        else:
            at = self._by_id.get(call_id) if call_id else self._last
        call = None if at is None else self._calls.get(at)
        if at is None or call is None:
            at = given if given is not None and given not in self._calls else self._fresh()
        elif call.ends_before(call_id, name, arguments):
            at = self._by_id.get(call_id, self._fresh())
        call = self._calls.setdefault(at, _OpenCall(call_id, name))
        call.id, call.name = call.id or call_id, call.name or name
        if arguments:
            call.closed = arguments.rstrip().endswith("}")
        if call_id:
            self._by_id.setdefault(call_id, at)
        if given is not None:
            self._given[given] = at
        self._last = at
        return at

    def _fresh(self) -> int:
        return max(self._calls, default=-1) + 1


def decode_event(data: bytes) -> WireChunk | None:
    """Decode an event's data; None when it is not a chunk at all."""
    try:
        return _decode(data)
    except RecursionError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_split(data)


def chunk_of(
    wire: WireChunk, choice: WireChoice | None, calls: CallIndexes, known_model: str = ""
) -> Chunk:
    """Translate; the chunk is empty when the event carries nothing that is used.

    The model's name is left out when it is the one known already.
    """
    text = reasoning = finish = name = ""
    deltas: tuple[ToolCallDelta, ...] = ()
    if choice is not None:
        if choice.finish_reason is not None:
            finish = _text(choice.finish_reason)
            finish = "" if finish in UNFINISHED else finish
        if (delta := choice.delta) is not None:
            content = delta.content
            text, reasoning = (content, "") if isinstance(content, str) else _texts(content)
            if delta.reasoning_content is not None or delta.reasoning is not None:
                # A gateway may repeat the reasoning under its other name.
                usual, other = _text(delta.reasoning_content), _text(delta.reasoning)
                name = "reasoning" if other and not (usual or text) else ""
                reasoning = usual or other or reasoning
            text = text.replace("\0", REPLACEMENT)  # no store holds it: the answer would be lost
            if delta.tool_calls:
                listed = delta.tool_calls if isinstance(delta.tool_calls, list) else []
                deltas = tuple(
                    tool_call_delta(one, calls) for one in listed if isinstance(one, dict)
                )
    counts = wire.usage
    if not counts and wire.x_groq:
        counts = wire.x_groq.get("usage") if isinstance(wire.x_groq, dict) else None
    usage = _usage(counts) if counts else None
    model = "" if wire.model == known_model else _text(wire.model)
    return Chunk(0, text, reasoning, deltas, finish, usage, model, field=name)


class OtherSpeech(NamedTuple):
    """What a delta says in fields that few deltas have: as in `Chunk`."""

    text: str = ""
    reasoning: str = ""
    field: str = ""
    other: Mapping[str, Any] = MappingProxyType({})


def read_other(data: bytes) -> OtherSpeech | None:
    """Read the fields of an event's delta that `WireDelta` has not; None where they say nothing.

    For events in which those it has are empty: reading an event twice costs as much as once.
    """
    try:
        try:
            chunk = _decode_other(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            value = json.loads(data.decode("utf-8", "surrogateescape"))
            chunk = msgspec.convert(value, _OtherChunk)
    except (ValueError, RecursionError):
        return None
    delta = next((choice.delta for choice in chunk.choices if not choice.index), None) or {}
    said = {name: delta[name] for name in delta if name not in NO_SPEECH and _says(delta[name])}
    if not said:
        return None
    tracks: dict[str, str] = {"text": "", "reasoning": ""}
    only = ""
    for name, value in said.items():
        track, _ = SPEECH.get(name, ("unread", ()))
        if track in tracks:
            tracks[track] = tracks[track] or _texts(value)[0]
            only = name if len(said) == 1 and isinstance(value, str) else ""
    text = tracks["text"].replace("\0", REPLACEMENT)
    return OtherSpeech(text, tracks["reasoning"], only, {} if only else said)


def encodable(value: Mapping[str, Any]) -> Any:
    """Return JSON that can be encoded: halves in its texts are mended, each by itself."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.loads(mend(json.dumps(value, ensure_ascii=False)))
    return value


def _says(value: object) -> bool:
    """Whether there is a text anywhere in it."""
    if isinstance(value, dict):
        return any(map(_says, value.values()))
    return (
        any(map(_says, value))
        if isinstance(value, list)
        else isinstance(value, str) and value != ""
    )


def _decode_split(data: bytes) -> WireChunk | None:
    # Strict decoders refuse half an emoji, written as a lone surrogate, and bytes that are no
    # UTF-8: both come from models cut at a token's end.
    try:
        value = json.loads(data.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None
    text = mend(json.dumps(value, ensure_ascii=False))
    try:
        wire = _decode(text)
    except msgspec.DecodeError:
        try:
            return WireChunk(error=msgspec.json.decode(text, type=_OnlyError).error)
        except msgspec.DecodeError:
            return None
    if wire.error or (wire.choice is not None and wire.choice.error):
        return wire
    try:
        return msgspec.convert(value, SplitChunk)
    except UnicodeEncodeError:  # half a character in the name of a field
        return wire


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(content: object) -> tuple[str, str]:
    """Return text and reasoning of a content, which may be a list of parts."""
    if isinstance(content, str):
        return content, ""
    text = reasoning = ""
    for part in content if isinstance(content, list) else (content,):
        if isinstance(part, dict):
            text += _text(part.get("text")) or _text(part.get("summary"))
            thinking = part.get("thinking")
            reasoning += thinking if isinstance(thinking, str) else _texts(thinking)[0]
    return text, reasoning


def tool_call_delta(delta: dict[str, object], calls: CallIndexes) -> ToolCallDelta:
    """Read a piece of a tool call, under the index of the call it belongs to."""
    function = delta.get("function")
    fields = function if isinstance(function, dict) else {}
    call_id = _text(delta.get("id"))
    arguments = fields.get("arguments")
    if isinstance(arguments, dict):  # some servers send the object itself instead of its text
        arguments = json.dumps(arguments)
    name, written = _text(fields.get("name")), _text(arguments)
    index = calls.of(delta.get("index"), call_id, name, written)
    return ToolCallDelta(index, call_id, name, written)


def _usage(usage: object) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    prompt = _count(usage.get("prompt_tokens"))
    completion = _count(usage.get("completion_tokens"))
    return Usage(prompt, completion, _count(usage.get("total_tokens")) or prompt + completion)


def _count(value: object) -> int:
    """Read a count of tokens; what cannot be one is none: sums and counters have to bear it."""
    count = int(value) if isinstance(value, int | float) else 0
    return count if 0 <= count <= _MAX_TOKENS else 0


def mend(text: str) -> str:
    """Join the halves in a text; what has no other half becomes U+FFFD."""
    text = _PAIR.sub(lambda pair: _join_pair(pair.group()), text)
    text = _BYTES.sub(lambda run: _bytes(run.group()).decode("utf-8", "replace"), text)
    return _LONE.sub(REPLACEMENT, text)


@dataclass(slots=True, eq=False)
class Halves:
    """Holds the half at the end of each track back until the next delta of that track.

    `held` are the halves by track: text, reasoning, or the index of a tool call.
    """

    held: dict[object, str] = field(default_factory=dict)

    def join(self, chunk: Chunk, *, last: bool = False) -> Chunk:
        """Make a chunk of whole characters; its last halves are held back unless it is the last.

        Only texts and arguments may be cut in two; in names and ids a half is replaced.
        """
        last = last or bool(chunk.finish)
        calls = [
            replace(
                call,
                id=mend(call.id),
                name=mend(call.name),
                arguments=self._join(call.index, call.arguments, last=False),
            )
            for call in chunk.tool_calls
        ]
        return replace(
            chunk,
            text=self._join("text", chunk.text, last=last),
            reasoning=self._join("reasoning", chunk.reasoning, last=last),
            tool_calls=(*calls, *self._rest()) if last else tuple(calls),
            finish=mend(chunk.finish),
            model=mend(chunk.model),
        )

    def _rest(self) -> Iterator[ToolCallDelta]:
        while self.held:
            index, half = self.held.popitem()
            if isinstance(index, int):
                yield ToolCallDelta(index, arguments=mend(half))

    def _join(self, track: object, text: str, *, last: bool) -> str:
        if not text and not last:
            return ""
        text = self.held.pop(track, "") + text
        held = 0 if last else _unfinished(text)
        if held:
            self.held[track] = text[-held:]
            text = text[:-held]
        return mend(text)


def _unfinished(text: str) -> int:
    """Return how many characters at the end of a text may be the beginning of another one."""
    if _HIGH.search(text):
        return 1
    found = _LAST_BYTES.search(text)
    if found is None:
        return 0
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(_bytes(found.group()))
    return len(decoder.getstate()[0])


def _join_pair(pair: str) -> str:
    return pair.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _bytes(run: str) -> bytes:
    return run.encode("utf-8", "surrogateescape")
