"""A first dialect for streams that none of the built-in ones reads, guessed from one answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from cutover.errors import CutoverError
from cutover.wire import SseEvent, events, payload

SHOWN_EVENTS = 8
SHOWN_CHARACTERS = 140
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


def draft(stream: bytes, media: str) -> str:
    """Return the text of a dialect's file, to be checked by hand; raises `StreamUnknown`."""
    sse = media == "text/event-stream"
    read = events(stream) if sse else [SseEvent(payload(one)) for one in stream.split(b"\n")]
    read = [one for one in read if one.data]
    values = [(one.event, value) for one in read if (value := _value(one.data)) is not None]
    marks = sorted(
        {one.data.decode("utf-8", "replace") for one in read if _value(one.data) is None}
    )
    if not values or len(marks) > 1:
        raise StreamUnknown(stream)
    path = "" if any(name for name, _ in values) else _name_path([one for _, one in values])
    named = [(str(value[path]) if path else name or "message", value) for name, value in values]
    lines = [
        "# A draft, made from one answer: check names, text and the end. The dialects that come",
        "# along (cutover/wire/dialects) show all keys. The first events:",
        *(f"#   {_shown(one)}" for one in read[:SHOWN_EVENTS]),
        f'framing = "{"sse" if sse else "ndjson"}"\n\n[names]',
        *([f"path = {_quoted(path)}"] if path else []),
        f"marks = {json.dumps(marks)}",
        *_rules(named, marks),
    ]
    return "\n".join(lines) + "\n"


def _value(data: bytes) -> Any:
    """Return the object or list in an event, None where it holds neither."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _name_path(values: Sequence[Any]) -> str:
    """Return the key by which events differ, "" where they all are of one kind."""
    first = values[0]
    for key in sorted(first, key=lambda one: one not in _NAMES) if isinstance(first, dict) else ():
        found = [one.get(key) for one in values if isinstance(one, dict)]
        if len(found) == len(values) and all(_NAME.fullmatch(str(one)) for one in found):
            return str(key)
    return ""


def _rules(named: Sequence[tuple[str, Any]], marks: Sequence[str]) -> Iterator[str]:
    """Yield the tables of events: where their text may be, and which one is the end."""
    names = [name for name, _ in named]
    ends = bool(marks) or (names.count(names[-1]) == 1 and len(set(names)) > 1)
    talks, text = _text(named)
    for name in dict.fromkeys(names):
        yield f"\n[[events]]\nname = {_quoted(name)}"
        if name == talks:
            yield f"texts = [{{ {text} }}]"
        elif name == names[-1] and ends and not marks:
            yield 'says = "end"'
    for mark in marks:
        yield f'\n[[events]]\nname = {_quoted(mark)}\nsays = "end"'
    yield '\n[[events]]\nname = ["error", "*error*", "*failed*"]\nsays = "failure"'
    yield '\n[[events]]\nname = "*"'
    yield "\n[end]" if ends else "\n[end]\nbody = true   # nothing marks it: a cut goes unseen"
    yield "\n[failure]   # says = [...]: the events by which a stream that broke is ended"


def _text(named: Sequence[tuple[str, Any]]) -> tuple[str, str]:
    """Return the event in which text is likeliest, and where: it differs most often, and is long.

    Two empty texts where there is none.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for name, value in named:
        for place, text in _strings(value, ""):
            found.setdefault((name, place), []).append(text)
    if not found:
        return "", ""
    name, place = max(found, key=lambda at: (len(set(found[at])), len("".join(found[at]))))
    pairs = list(pairwise(found[name, place]))
    grows = bool(pairs) and all(later.startswith(one) for one, later in pairs)
    return name, f'channel = "content", path = {_quoted(place)}' + ', growth = "total"' * grows


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


def _shown(event: SseEvent) -> str:
    text = event.data.decode("utf-8", "replace")
    return ascii(f"{event.event}: {text}" if event.event else text)[1:-1][:SHOWN_CHARACTERS]
