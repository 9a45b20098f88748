"""Reading an answer with a dialect: what it finds, and whether it fits."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import get_args

import msgspec

from contract.flow import FlowSpec
from contract.wire import (
    NO_JSON,
    Dialect,
    EventDecoder,
    Framing,
    WireEvent,
    WireReader,
    value_at,
)
from contract.wire.sse import SseDecoder
from cutover.recognition.answers import Answer

_FIELD = re.compile(rb"(?:data|event|id|retry)?:|(?:data|event|id|retry)$")
"""A line of server-sent events: a field, or a comment."""


@dataclass(slots=True)
class DialectReading:
    """What a dialect finds in an answer.

    `text` is the whole text, `pieces` counts the events that made it longer, `first_text` is when
    the first of them came, in microseconds since the request. `terminal` names the event that ended
    the stream, "" where none did; `behind` counts the events after it. `failures` are the codes of
    the failures it reports; `foreign` counts events that are none of a built-in flow's.
    """

    names: Counter[str] = field(default_factory=Counter)
    malformed: int = 0
    foreign: int = 0
    text: str = ""
    pieces: int = 0
    first_text: int = 0
    reasoning: bool = False
    calls_tools: bool = False
    terminal: str = ""
    behind: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def says_something(self) -> bool:
        """Whether there is some text or a tool call: without, any stream of JSON would do."""
        return bool(self.text.strip()) or self.calls_tools

    def sound(self) -> bool:
        """Whether the dialect can read every event, and no event stands behind the end."""
        return not (self.malformed or self.foreign or self.behind) and bool(self.names)

    def fits(self, dialect: Dialect, answer: Answer) -> bool:
        """Whether an answer is one of the dialect: sound, with a text, and ended as declared.

        A terminal event may be missing where the answer broke off or has not ended.
        """
        ended = bool(self.terminal) or not dialect.terminal or answer.end != "complete"
        return self.sound() and self.says_something and ended


def read(dialect: Dialect, answer: Answer, spec: FlowSpec | None = None) -> DialectReading:
    """Read an answer; events of a built-in flow must be among those that its `spec` declares."""
    decoder, found = EventDecoder(dialect), DialectReading()
    reader, own = WireReader(decoder), _own_events(spec)
    for at, event in events_of(reader, answer):
        if event.skipped:
            continue
        if found.terminal:
            found.behind += 1
            continue
        found.names[event.name] += 1
        found.malformed += event.malformed
        found.foreign += bool(own) and not _is_one_of(own, event)
        found.calls_tools = found.calls_tools or decoder.calls_tool(event.value)
        grown = reader.grown(event)
        found.reasoning = found.reasoning or "reasoning" in grown
        if "text" in grown:
            _add_text(found, event, at)
        if (code := event.failure) is not None:
            found.failures.append(code)
        if event.ends:
            found.terminal = event.name if event.name in decoder.terminal else event.part or ""
    return found


def _own_events(spec: FlowSpec | None) -> Mapping[str, type[msgspec.Struct]]:
    """Return the structs of a built-in flow's events by name; a declared flow has none."""
    kinds = get_args(spec.events) if spec is not None else ()
    return {str(kind.__struct_config__.tag): kind for kind in kinds}


def _is_one_of(kinds: Mapping[str, type[msgspec.Struct]], event: WireEvent) -> bool:
    if (kind := kinds.get(event.name)) is None:
        return False
    try:
        msgspec.json.decode(event.data, type=kind)
    except NO_JSON:
        return False
    return True


def _add_text(found: DialectReading, event: WireEvent, at: int) -> None:
    found.first_text = at if not found.pieces else found.first_text
    found.pieces += 1
    places = [it for it in event.texts() if it.track == "text"]
    added = "".join(value_at(event.value, it.at) for it in places if it.growth == "delta")
    whole = "".join(value_at(event.value, it.at) for it in places if it.growth == "cumulative")
    found.text = max(found.text + added, whole, key=len)


def events_of(reader: WireReader, answer: Answer) -> Iterator[tuple[int, WireEvent]]:
    """Yield the events of an answer, each with the time of the piece that completed it."""
    for at, piece in answer.pieces:
        for event in reader.feed(piece):
            yield at, event
    for event in reader.flush():
        yield answer.ended, event


def framing_of(answer: Answer) -> Framing | None:
    """Return how a body is framed, whatever its type says; None where it is one JSON document."""
    body = answer.body.removeprefix(BOM_UTF8)
    lines = body.splitlines()
    if answer.end != "complete" and lines and not body.endswith((b"\n", b"\r")):
        lines.pop()  # may be torn
    filled = [line for line in lines if line.strip()]
    events = SseDecoder().feed(body + b"\n\n")
    if events and all(_FIELD.match(line) for line in filled):
        return "sse"
    if _is_container(body):
        return None
    if len(filled) > 1 and all(map(_is_container, filled)):
        return "ndjson"
    return "text"


def _is_container(data: bytes) -> bool:
    """Whether bytes are a JSON object or array: prose may well be a number."""
    try:
        return isinstance(msgspec.json.decode(data), dict | list)
    except NO_JSON:
        return False
