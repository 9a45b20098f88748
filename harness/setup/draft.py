"""A first dialect for a stream that no built-in one reads, made from one answer."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from cutover.wire import events

_WORDS = frozenset(
    {"answer", "chunk", "content", "delta", "message", "output", "piece", "response", "text"}
    | {"token", "value", "t", "c"}
)
"""What the key of a text is usually called."""
_NAME = re.compile(r"[\w.:/-]{1,40}")
MOST_NAMES = 12


class Draft(NamedTuple):
    """What an answer shows of its form; "" is what it does not show."""

    names: str
    """The path of an event's name."""
    marks: Sequence[str]
    """Events that are no JSON."""
    event: str
    text: str
    """The path of the text in the events of this name."""
    total: bool
    """Whether each such text repeats those before it."""
    end: str
    """The name of the last event, where it is the only one of its name."""


def draft(raw: bytes, *, sse: bool) -> Draft | None:
    """Return what an answer shows of its form; None where its first event is no JSON."""
    blocks = [(one.event, one.data) for one in events(raw)] if sse else []
    blocks = blocks or [("", line) for line in raw.split(b"\n") if line.strip()]
    read = [(name, *_decoded(data)) for name, data in blocks]
    if not read or read[0][2]:
        return None
    names = _named([value for _, value, mark in read if not mark])
    places = defaultdict[tuple[str, str], list[str]](list)
    seen = []
    for line, value, mark in read:
        name = mark or (value.get(names) if names else line) or "message"
        seen.append(name)
        for path, text in _leaves(value):
            if path != names:
                places[name, path].append(text)
    marks = list(dict.fromkeys(mark for *_, mark in read if mark))[:MOST_NAMES]
    event, text = max(places, key=lambda one: _likely(one[1], places[one]), default=("", ""))
    grown = places[event, text] if text else []
    total = len(set(grown)) > 1 and all(b.startswith(a) for a, b in pairwise(grown))
    last = seen[-1] if Counter(seen)[seen[-1]] == 1 and seen[-1] != event else ""
    return Draft(names, marks, event or "message", text, total, last)


def _decoded(data: bytes) -> tuple[Any, str]:
    """Return a payload, and the payload itself as text where it is no JSON."""
    try:
        return json.loads(data), ""
    except ValueError:
        return None, data.decode("utf-8", "replace")


def _named(values: Sequence[Any]) -> str:
    """Return the key by which events are told apart: few short words, some of which come again."""
    tables = [one for one in values if isinstance(one, dict)]
    for key in tables[0] if tables and len(tables) == len(values) else ():
        said = [one.get(key) for one in tables]
        if all(isinstance(one, str) and _NAME.fullmatch(one) for one in said):
            kinds = len(set(said))
            if "." not in key and 1 < kinds < len(said) and kinds <= MOST_NAMES:
                return str(key)
    return ""


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, one in value.items():
            if re.fullmatch(r"[^.\[\]*]+", key):
                yield from _leaves(one, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one, f"{path}[*]")
    elif isinstance(value, str) and value and path:
        yield path, value


def _likely(path: str, texts: Sequence[str]) -> tuple[bool, bool, int, int]:
    """Return how likely these strings are the text: they differ, are called so, and are many."""
    last = re.split(r"[.\[]", path.replace("[*]", ""))[-1].lower()
    differ = len(texts) == 1 or len(set(texts)) > 1
    return differ, last in _WORDS, len(texts), sum(map(len, texts))
