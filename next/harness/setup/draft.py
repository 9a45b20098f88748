"""A first dialect for streams that none of the built-in ones reads, guessed from one answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cutover.errors import CutoverError
from cutover.wire import LineSplitter, events, payload

SHOWN_EVENTS = 8
SHOWN_CHARACTERS = 140
LIKELY = 3
"""Places of text that are named."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:/-]*")
_NAMES = ("type", "event", "kind", "step")
_NEVER = ("id", "_id", "time", "timestamp", "created", "created_at", "model", "role", *_NAMES)


class StreamUnknown(CutoverError):
    """A stream holds no events of JSON, so that no dialect can be drafted."""

    def __init__(self, first: bytes) -> None:
        super().__init__(
            f"no dialect reads a stream that begins {first[:80]!r}: its events are no JSON. "
            "Dialects read SSE and lines with JSON in them, and plain text sent as text/plain"
        )


@dataclass(frozen=True, slots=True)
class _Event:
    name: str
    data: str
    value: Any


def draft(stream: bytes, media: str) -> str:
    """Return the text of a dialect's file, to be checked by hand; raises `StreamUnknown`."""
    framing = "sse" if media == "text/event-stream" else "ndjson"
    raw = [(one.event, one.data) for one in _split(stream, framing)]
    read = [_Event(name, data.decode("utf-8", "replace"), _value(data)) for name, data in raw]
    values = [one for one in read if isinstance(one.value, dict | list)]
    marks = sorted({one.data for one in read} - {one.data for one in values})
    if not values or len(marks) > 1:
        raise StreamUnknown(stream)
    path = "" if any(one.name for one in values) else _name_path(values)
    named = [_Event(one.value[path] if path else one.name or "message", one.data, one.value)
             for one in values]  # fmt: skip
    lines = [
        "# A draft, made from one answer: check names, texts and the end. The dialects that come",
        "# along (cutover/wire/dialects) show all keys. The first events:",
        *(f"#   {_shown(one)}" for one in read[:SHOWN_EVENTS]),
        f'framing = "{framing}"',
        *_naming(path, marks),
        *_rules(named, marks),
    ]
    return "\n".join(lines) + "\n"


def _split(stream: bytes, framing: str) -> Iterator[Any]:
    if framing == "sse":
        yield from events(stream)
        return
    cut = LineSplitter()
    for line in cut.feed(stream) + cut.flush():
        if data := payload(line):
            yield _Line(data)


@dataclass(frozen=True, slots=True)
class _Line:
    data: bytes
    event: str = ""


def _value(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _name_path(events: Sequence[_Event]) -> str:
    """Return the key by which events differ, "" where they all are of one kind."""
    first = events[0].value
    for key in sorted(first, key=lambda one: one not in _NAMES) if isinstance(first, dict) else ():
        found = [one.value.get(key) for one in events if isinstance(one.value, dict)]
        if len(found) == len(events) and all(_NAME.fullmatch(str(one)) for one in found):
            return str(key)
    return ""


def _naming(path: str, marks: Sequence[str]) -> Iterator[str]:
    if path or marks:
        yield "\n[names]"
    if path:
        yield f"path = {_quoted(path)}"
    if marks:
        yield f"marks = [{_quoted(marks[0])}]"


def _rules(events: Sequence[_Event], marks: Sequence[str]) -> Iterator[str]:
    """Yield the tables of events: where their text may be, and which one is the end."""
    texts = _texts(events)
    names = list(dict.fromkeys(one.name for one in events))
    last = events[-1].name
    ends = bool(marks) or ([one.name for one in events].count(last) == 1 and len(names) > 1)
    if texts:
        shown = ", ".join(f"{place} of {name!r} ({n} pieces)" for name, place, n, _ in texts)
        yield f"\n# Text may be at {shown}."
    for name in names:
        yield f"\n[[events]]\nname = {_quoted(name)}"
        if texts and name == texts[0][0]:
            growth = ', growth = "total"' if texts[0][3] else ""
            yield f'texts = [{{ channel = "content", path = {_quoted(texts[0][1])}{growth} }}]'
        elif name == last and ends and not marks:
            yield 'says = "end"'
    if marks:
        yield f'\n[[events]]\nname = {_quoted(marks[0])}\nsays = "end"'
    yield '\n[[events]]\nname = ["error", "*error*", "*failed*"]\nsays = "failure"'
    yield '\n[[events]]\nname = "*"'
    yield "\n[end]" if ends else "\n[end]\nbody = true   # nothing marks it: a cut goes unseen"
    yield "\n[failure]   # says = [...]: the events by which a stream that broke is ended"


def _texts(events: Sequence[_Event]) -> list[tuple[str, str, int, bool]]:
    """Return where text may be, likeliest first: name, path, pieces, whether it is the text so far.

    Text is what differs from piece to piece, and is long in all.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for event in events:
        for place, text in _strings(event.value, ""):
            found.setdefault((event.name, place), []).append(text)
    ranked = sorted(found, key=lambda at: (len(set(found[at])), len("".join(found[at]))))[::-1]
    return [
        (name, place, len(found[name, place]), _grows(found[name, place]))
        for name, place in ranked[:LIKELY]
    ]


def _grows(pieces: Sequence[str]) -> bool:
    pairs = list(pairwise(pieces))
    return bool(pairs) and all(later.startswith(one) for one, later in pairs)


def _strings(value: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str) and place:
        yield place, value
    elif isinstance(value, dict):
        for key, one in value.items():
            if key.lower() not in _NEVER and not set(key) & set(".[]*"):
                yield from _strings(one, f"{place}.{key}" if place else key)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one, f"{place}[*]")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _shown(event: _Event) -> str:
    line = f"{event.name}: {event.data}" if event.name else event.data
    return ascii(line)[1:-1][:SHOWN_CHARACTERS]
