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
OPENAI = declared_spec("d", DeclaredFlow(path="/d", dialect=built_in()["openai"])).dialect
DIALECTS = {
    "tokens": TOKENS,
    "chunks": CHUNKS,
    "lines": LINES,
    "chat": CHAT.dialect,
    "openai": OPENAI,
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
    return list(
        {"tokens": _tokens, "chunks": _chunks, "lines": _lines, "chat": _chat, "openai": _chunks}[
            wire
        ](speech)
    )


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


def _named(name: str, payload: Json) -> bytes:
    return f"event: {name}\r\ndata:{json.dumps(payload)}\r\n\r\n".encode()


def _data(payload: Json) -> bytes:
    return f"data: {json.dumps(payload)}\n\n".encode()


def _line(payload: Json) -> bytes:
    return json.dumps(payload).encode() + b"\n"


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
