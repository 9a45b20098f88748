"""The requests of well-known APIs, by which `init` finds out what a service speaks."""

from __future__ import annotations

import tomllib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Final

SAYS: Final = "Say hello in five words."


@dataclass(frozen=True, slots=True)
class Shape:
    """An API: where it usually is, and a request's body; `conversation` is where its id stands."""

    name: str
    paths: Sequence[str]
    body: Mapping[str, Any]
    conversation: str = ""


def _known() -> list[Shape]:
    text = Template((Path(__file__).parent / "shapes.toml").read_text("utf-8"))
    filled = text.substitute(says=SAYS, thread=uuid.uuid4(), run=uuid.uuid4())
    return [Shape(**one) for one in tomllib.loads(filled)["shapes"]]


_PLAIN: Final = ("/chat", "/chat/stream", "/stream", "/ask", "/api/chat", "/")
SHAPES: Final = (
    *_known(),
    *(
        Shape(f"plain {key}", _PLAIN, {key: SAYS, "stream": True})
        for key in ("message", "input", "query", "prompt", "question")
    ),
    Shape(
        "plain messages",
        _PLAIN,
        {"messages": [{"role": "user", "content": SAYS}], "stream": True},
    ),
)


def shapes_for(path: str) -> Iterator[tuple[str, Shape]]:
    """Yield paths and shapes to be tried; with a `path`, the shapes that are usual there first."""
    if not path:
        yield from ((usual, shape) for shape in SHAPES for usual in shape.paths)
        return
    usual = [one for one in SHAPES if path in one.paths]
    yield from ((path, one) for one in (*usual, *(one for one in SHAPES if one not in usual)))
