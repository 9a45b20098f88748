"""Wires with the same content, and a reader of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from contract.flows.chat import CHAT
from contract.flows.declared import DeclaredFlow, declared_spec
from contract.wire import Dialect, ErrorPaths, EventNames, built_in
from router.serving.prefix import TextFrames

TOKENS = Dialect(
    text={"token": "text"},
    reasoning={"thought": "text"},
    terminal=("done",),
    errors=ErrorPaths(events=("error",)),
)
CHUNKS = Dialect(
    text={"message": "choices.0.delta.content"},
    reasoning={"message": "choices.0.delta.reasoning"},
    terminal=("[DONE]",),
)
LINES = Dialect(
    framing="ndjson",
    event=EventNames(path="type"),
    growth="cumulative",
    text={"say": "text", "whole": "text"},
    reasoning={"say": "thought"},
    terminal=("end",),
)
PLAIN = Dialect(payload="text", terminal=("[DONE]",))
OPENAI = declared_spec("d", DeclaredFlow(path="/d", dialect=built_in()["openai"])).dialect
DIALECTS = {
    "tokens": TOKENS,
    "chunks": CHUNKS,
    "lines": LINES,
    "chat": CHAT.dialect,
    "openai": OPENAI,
    "text": built_in()["text"],
    "plain": PLAIN,
    "ai-sdk": built_in()["ai-sdk"],
    "langgraph": built_in()["langgraph"],
}
Json = Any


@dataclass(frozen=True)
class Speech:
    """What is to be said: thoughts first, then text, each in pieces; `mark` differs by speaker."""

    thoughts: Sequence[str]
    pieces: Sequence[str]
    mark: str


def spoken(wire: str, speech: Speech) -> list[bytes]:
    """Write it to a wire."""
    return list(_WRITERS[wire](speech))


def _tokens(speech: Speech) -> Iterator[bytes]:
    yield _named("start", {"id": speech.mark})
    for thought in speech.thoughts:
        yield _named("thought", {"text": thought})
    yield b": still here\r\n\r\n"
    yield _named("tool", {"id": speech.mark, "name": "search"})
    for piece in speech.pieces:
        yield _named("token", {"text": piece, "id": speech.mark})
    yield _named("done", {"id": speech.mark})


def _chunks(speech: Speech) -> Iterator[bytes]:
    def chunk(finish: str | None = None, **delta: str) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _data({"id": speech.mark, "choices": [choice]})

    yield chunk(role="assistant", content="")
    for thought in speech.thoughts:
        yield chunk(reasoning=thought)
    for piece in speech.pieces:
        yield chunk(content=piece)
    yield chunk("stop")
    yield b"data: [DONE]\n\n"


def _lines(speech: Speech) -> Iterator[bytes]:
    yield _line({"type": "start", "id": speech.mark})
    thought = text = ""
    for more in speech.thoughts:
        thought += more
        yield _line({"type": "say", "text": "", "thought": thought})
    for more in speech.pieces:
        text += more
        yield _line({"type": "say", "text": text, "thought": thought})
    yield _line({"type": "whole", "text": text})
    yield _line({"type": "end"})


def _chat(speech: Speech) -> Iterator[bytes]:
    yield _data({"step": "ACCEPT"})
    yield _data({"step": "START_REPLY"})
    thought = text = ""
    for more in speech.thoughts:
        thought += more
        yield _data({"step": "SEND", "content": "", "reason_content": thought})
    for more in speech.pieces:
        text += more
        yield _data({"step": "SEND", "content": text, "reason_content": thought})
    yield _data({"step": "SUCCESS", "content": text})
    yield _data({"step": "END"})


def _text(speech: Speech) -> Iterator[bytes]:
    # A piece that is cut through a character is none: plain text has no escape for it.
    for piece in _whole(speech.pieces):
        yield piece.encode()


def _plain(speech: Speech) -> Iterator[bytes]:
    for piece in map(carried, _whole(speech.pieces)):
        lines = "".join(f"data: {line}\n" for line in piece.split("\n"))
        yield f"{lines}\n".encode()
    yield b"data: [DONE]\n\n"


def carried(text: str) -> str:
    """Return what lines of text carry of one: a carriage return would end a line."""
    return text.replace("\r", "")


def _whole(pieces: Sequence[str]) -> Iterator[str]:
    units = b""
    for piece in pieces:
        units += piece.encode("utf-16-le", "surrogatepass")
        try:
            yield units.decode("utf-16-le")
        except UnicodeDecodeError:
            continue
        units = b""


def _ai_sdk(speech: Speech) -> Iterator[bytes]:
    def block(kind: str, pieces: Sequence[str]) -> Iterator[bytes]:
        named = {"id": f"{kind} {speech.mark}"}
        yield _data({"type": f"{kind}-start", **named})
        for piece in pieces:
            yield _data({"type": f"{kind}-delta", **named, "delta": piece})
        yield _data({"type": f"{kind}-end", **named})

    yield _data({"type": "start", "messageId": speech.mark})
    yield _data({"type": "start-step"})
    if speech.thoughts:
        yield from block("reasoning", speech.thoughts)
    yield from block("text", speech.pieces)
    yield _data({"type": "finish-step"})
    yield _data({"type": "finish", "finishReason": "stop"})
    yield b"data: [DONE]\n\n"


def _langgraph(speech: Speech) -> Iterator[bytes]:
    def chunk(content: Json) -> bytes:
        message = {"type": "AIMessageChunk", "id": f"run {speech.mark}", "content": content}
        return _named("messages", [message, {"langgraph_node": "agent"}])

    yield _named("metadata", {"run_id": speech.mark})
    yield chunk("")
    for thought in speech.thoughts:
        yield chunk([{"type": "thinking", "thinking": thought}])
    for piece in speech.pieces:
        yield chunk(piece)
    yield _named("end", None)


def _named(name: str, payload: Json) -> bytes:
    return f"event: {name}\r\ndata:{json.dumps(payload)}\r\n\r\n".encode()


def _data(payload: Json) -> bytes:
    return f"data: {json.dumps(payload)}\n\n".encode()


def _line(payload: Json) -> bytes:
    return json.dumps(payload).encode() + b"\n"


_WRITERS = {
    "tokens": _tokens,
    "chunks": _chunks,
    "lines": _lines,
    "chat": _chat,
    "openai": _chunks,
    "text": _text,
    "plain": _plain,
    "ai-sdk": _ai_sdk,
    "langgraph": _langgraph,
}


@dataclass
class Heard:
    """What a client makes of frames: both texts, and the kinds of events that have none."""

    text: str
    reasoning: str
    silent: list[str]


def heard(wire: str, frames: Sequence[bytes]) -> Heard:
    """Listen to a stream."""
    texts = {"text": b"", "reasoning": b""}
    silent: list[str] = []
    for frame in frames:
        event = TextFrames(DIALECTS[wire]).read(frame)
        if event is None:
            continue
        if not event.texts:
            silent.append("/".join(event.kind))
        for text in event.texts:
            whole = texts[text.track] + text.units
            grows = text.growth == "delta"
            assert grows or text.units.startswith(texts[text.track]), "a text may not shrink"
            texts[text.track] = whole if grows else text.units
    joined = {track: units.decode("utf-16-le", "surrogatepass") for track, units in texts.items()}
    return Heard(joined["text"], joined["reasoning"], silent)
