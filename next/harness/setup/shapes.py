"""The requests of well-known APIs, by which `init` finds out what a service speaks."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SAYS: Final = "Say hello in five words."
_MODEL: Final = "gpt-4o-mini"
_MESSAGES: Final = [{"role": "user", "content": SAYS}]
_THREAD: Final = str(uuid.uuid4())
_RUN: Final = {
    "assistant_id": "agent",
    "input": {"messages": _MESSAGES},
    "stream_mode": ["messages-tuple", "values"],
    "if_not_exists": "create",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """An API: where it usually is, and a request's body; `conversation` is where its id stands."""

    name: str
    paths: Sequence[str]
    body: Mapping[str, Any]
    conversation: str = ""


_PLAIN: Final = ("/chat", "/chat/stream", "/stream", "/ask", "/api/chat", "/")
SHAPES: Final = (
    Shape(
        "chat completions",
        ("/v1/chat/completions", "/chat/completions"),
        {"model": _MODEL, "messages": _MESSAGES, "stream": True},
    ),
    Shape(
        "responses",
        ("/v1/responses", "/responses"),
        {"model": _MODEL, "input": SAYS, "stream": True},
    ),
    Shape(
        "Anthropic messages",
        ("/v1/messages",),
        {"model": "claude-sonnet", "max_tokens": 64, "messages": _MESSAGES, "stream": True},
    ),
    Shape(
        "LangGraph server, threads",
        ("/threads/{thread}/runs/stream",),
        _RUN,
        "path.thread",
    ),
    Shape("LangGraph server, runs", ("/runs/stream",), _RUN),
    Shape(
        "AI SDK",
        ("/api/chat",),
        {
            "id": _THREAD,
            "trigger": "submit-message",
            "messages": [
                {
                    "id": "m1",
                    "role": "user",
                    "content": SAYS,
                    "parts": [{"type": "text", "text": SAYS}],
                }
            ],
        },
        "body.id",
    ),
    Shape(
        "AG-UI",
        ("/", "/agent", "/awp", "/agui"),
        {
            "threadId": _THREAD,
            "runId": str(uuid.uuid4()),
            "messages": [{"id": "m1", "role": "user", "content": SAYS}],
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": {},
        },
        "body.threadId",
    ),
    *(
        Shape(f"plain {key}", _PLAIN, {key: SAYS, "stream": True})
        for key in ("message", "input", "query", "prompt", "question")
    ),
    Shape("plain messages", _PLAIN, {"messages": _MESSAGES, "stream": True}),
)


def shapes_for(path: str) -> Iterator[tuple[str, Shape]]:
    """Yield paths and shapes to be tried; with a `path`, the shapes that are usual there first."""
    if not path:
        yield from ((usual, shape) for shape in SHAPES for usual in shape.paths)
        return
    usual = [one for one in SHAPES if path in one.paths]
    yield from ((path, one) for one in (*usual, *(one for one in SHAPES if one not in usual)))
