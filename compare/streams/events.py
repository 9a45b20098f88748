"""Events: frames read through a flow's dialect, comment frames removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

import msgspec

from compare.input.captures import echoes
from compare.streams.payloads import NO_OBJECT, Fault, Payloads, not_json
from compare.streams.templates import FRAME, KEPT_AT_MOST, Template, Thrift, bound_texts, learn
from contract.wire.dialect import Growth, Wire
from contract.wire.paths import take
from contract.wire.reader import EventDecoder
from contract.wire.sse import SseDecoder

NOT_JSON = "(not JSON)"
NAME, TEXT, REASONING, FAULT = "@event", "@text", "@reasoning", "@fault"
"""Keys of streams in normal form: an event's name, its texts, and what is wrong with it."""
REMEMBERED_UP_TO = 96
REMEMBERED_AT_MOST = 4_096

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Event(msgspec.Struct, frozen=True):
    """One event of a stream.

    `data` is its payload as sent, `shape` the payload without name and texts; `bare` events carry
    nothing but text and may repeat, so where their text is cut is nobody's business. `fault` is
    what is wrong with the payload.
    """

    name: str
    data: str
    shape: bytes
    text: str | None = None
    reasoning: str | None = None
    bare: bool = False
    growth: Growth | None = None
    fault: Fault | None = None


Stamped = tuple[int, str]
"""A frame and when it was sent, microseconds since the exchange began."""


@dataclass(slots=True)
class Alike:
    """Frames of one template: what their texts share with the one before is not read again.

    `lead` and `trail` are how much stands before and behind an event's payload in its frame;
    `body` is the last frame up to the end of its text, `text` what that was.
    """

    template: Template[str]
    tail: str
    lead: int
    trail: int
    body: str
    text: str

    @staticmethod
    def of(template: Template[str], frame: str) -> Alike | None:
        """Begin with the frame a template was learnt from; None where its payload is no piece."""
        lead = frame.find(template.event.data)
        if lead < 0:
            return None
        trail = len(frame) - lead - len(template.event.data)
        body = frame[: len(frame) - len(template.tail)]
        text = template.event.text or ""
        return Alike(template, template.tail, lead, trail, body, text)

    def event(self, frame: str) -> Event | None:
        """Read a frame of the template; None when its text needs a closer look."""
        start, end, text = len(self.body), len(frame) - len(self.tail), self.text
        if end < start or not frame.startswith(self.body):
            start, text = len(self.template.head), ""
        more = frame[start:end]
        if '"' in more or "\\" in more or not more.isprintable():
            if not FRAME.safe(frame, start, end):
                return None
            more = _decode(f'"{more}"')
        self.body = frame[:end]
        self.text = text + more
        data = frame[self.lead : len(frame) - self.trail]
        return msgspec.structs.replace(self.template.event, data=data, text=self.text)


class EventReader:
    """Reads frames of one wire."""

    __slots__ = (
        "_alikes",
        "_decoder",
        "_lines",
        "_normal",
        "_payloads",
        "_recent",
        "_remembered",
        "_repeatable",
        "_tag",
        "_thrift",
        "bound",
        "terminal",
    )

    def __init__(self, spec: Wire) -> None:
        self._decoder = EventDecoder(spec.dialect)
        self._lines = spec.dialect.framing == "ndjson"
        self._payloads = Payloads(spec)
        self.terminal = self._decoder.terminal
        self._repeatable = frozenset(
            name for step in spec.grammar.steps if step.most != 1 for name in step.names
        )
        path = self._decoder.name_path
        self._tag = path[0] if len(path) == 1 else ""
        self._normal = self._tag == NAME
        # ACCEPT, END and their like: read once, met in every exchange.
        self._remembered: dict[str, Event] = {}
        self._recent: dict[str, Event] = {}
        self.bound = bound_texts(spec)
        self._alikes: list[Alike] = []
        self._thrift = Thrift()

    def read_all(self, frames: Iterable[Stamped]) -> list[Event | None]:
        """Read the frames of one run, as `read` does one by one."""
        return [self._next(frame) for _, frame in frames]

    def read_again(
        self, frames: Iterable[Stamped], others: Sequence[Stamped], known: Sequence[Event | None]
    ) -> list[Event | None]:
        """Read the frames of one run; those it shares with others are `known`, in their order."""
        repeated = echoes((frame for _, frame in frames), [frame for _, frame in others])
        return [
            self._next(frame) if index is None else known[index]
            for (_, frame), index in zip(frames, repeated, strict=True)
        ]

    def _next(self, frame: str) -> Event | None:
        """Read the usual frame, as the one before but for more text, in as few steps as can be."""
        last = self._alikes[0] if self._alikes else None
        if last and frame.startswith(last.body) and frame.endswith(last.tail):
            self._thrift.used += 1
            event = last.event(frame)
            if event is not None:
                return event
        return self.read(frame)

    @property
    def learns(self) -> bool:
        """Whether frames are still looked at for what they have in common."""
        return self._thrift.pays

    def begin(self) -> None:
        """Begin an exchange: what its runs have in common is read once."""
        self._recent = {}

    def read(self, frame: str) -> Event | None:
        """Read one frame; None for a comment."""
        if frame.startswith(":"):
            return None
        short = len(frame) <= REMEMBERED_UP_TO
        # Long frames are like others before they are the same as one: looking that up reads all.
        event = None if short else self._alike(frame)
        if event is None:
            event = self._recent.get(frame) or self._remembered.get(frame)
        return event or self._new(frame, short=short)

    def _new(self, frame: str, *, short: bool) -> Event:
        event = self._read(frame)
        kept = short and len(self._remembered) < REMEMBERED_AT_MOST
        (self._remembered if kept else self._recent)[frame] = event
        return event

    def _alike(self, frame: str) -> Event | None:
        """Read a frame that is like one before but for its text."""
        for index, alike in enumerate(self._alikes):
            if alike.template.holds(frame):
                self._thrift.used += 1
                self._alikes.insert(0, self._alikes.pop(index))
                return alike.event(frame)
        return None

    def _read(self, frame: str) -> Event:
        event = self._event(*self._payload(frame))
        free = event.name not in self.bound
        if free and len(frame) > REMEMBERED_UP_TO and self.learns:
            self._thrift.learnt += 1
            template = learn(FRAME, frame, event, self._probed)
            alike = template and Alike.of(template, frame)
            if alike:
                self._alikes = [alike, *self._alikes[: KEPT_AT_MOST - 1]]
        return event

    def _probed(self, frame: str) -> Event:
        return self._event(*self._payload(frame))

    def _payload(self, frame: str) -> tuple[str, str]:
        """Split a frame into its SSE event name and its data."""
        if self._lines:
            return "", frame.strip()
        if frame.startswith("data: ") and frame.find("\n") == len(frame) - 2:
            return "", frame[6:-2]
        events = SseDecoder().feed(frame.encode())
        if len(events) != 1:
            return "", frame
        return events[0].event, events[0].text

    def _event(self, sse_name: str, data: str) -> Event:
        try:
            value = _decode(data)
        except (msgspec.DecodeError, RecursionError) as trouble:
            return Event(sse_name or NOT_JSON, data, data.encode(), fault=not_json(trouble))
        if type(value) is not dict:
            return Event(sse_name or NOT_JSON, data, data.encode(), fault=NO_OBJECT)
        name = self._decoder.name(sse_name, value)
        if self._tag:
            value.pop(self._tag, None)
        fault = self._fault(name, data, value)
        text, growth = self._taken("text", name, value)
        reasoning, thought = self._taken("reasoning", name, value)
        return Event(
            name,
            data,
            _encode(value) if value else b"{}",
            text,
            reasoning,
            not value and (text is not None or reasoning is not None) and name in self._repeatable,
            growth or thought,
            fault,
        )

    def _taken(
        self, track: str, name: str, value: dict[str, Any]
    ) -> tuple[str | None, Growth | None]:
        """Take a text out of a value, and what that leaves empty."""
        paths, growth = self._decoder.text_paths(track, name)
        pieces = [piece for path in paths for piece in take(value, path, _is_text)]
        return "".join(pieces) if pieces else None, growth if paths else None

    def _fault(self, name: str, data: str, value: dict[str, Any]) -> Fault | None:
        if self._normal:
            noted = value.pop(FAULT, None)
            return Fault(*noted) if noted else None
        return self._payloads.fault(name, data)


class Stream(msgspec.Struct, frozen=True):
    """What one run sent.

    `at` in microseconds since the exchange began; `reached` is the length of text and of
    reasoning after each event; `shrank` the first event whose cumulative text took back.
    """

    at: tuple[int, ...]
    events: tuple[Event, ...]
    reached: tuple[tuple[int, int], ...]
    text: str
    reasoning: str
    shrank: int | None = None


def read_stream(reader: EventReader, frames: Iterable[Stamped]) -> Stream:
    """Read a run's frames."""
    frames = tuple(frames)
    read = reader.read_all(frames)
    return _stream(*_events(frames, read), reader.terminal)


def read_streams(
    reader: EventReader, legacy: Sequence[Stamped], graph: Sequence[Stamped]
) -> tuple[Stream, Stream]:
    """Read the frames of two runs; of equal streams only the stamps are read twice."""
    known = reader.read_all(legacy)
    first = _stream(*_events(legacy, known), reader.terminal)
    at, events = _events(graph, reader.read_again(graph, legacy, known))
    if len(events) == len(first.events) and all(map(is_, events, first.events)):
        return first, msgspec.structs.replace(first, at=tuple(at))
    return first, _stream(at, events, reader.terminal)


def _events(
    frames: Iterable[Stamped], read: Iterable[Event | None]
) -> tuple[list[int], list[Event]]:
    """Leave out comments."""
    found = [(at, event) for (at, _), event in zip(frames, read, strict=True) if event is not None]
    return [at for at, _ in found], [event for _, event in found]


def _stream(at: Sequence[int], events: Sequence[Event], terminal: frozenset[str]) -> Stream:
    text = reasoning = ""
    reached: list[tuple[int, int]] = []
    shrank: int | None = None
    ended = False
    for index, event in enumerate(events):
        if ended:
            # Nobody reads on behind the end: a frame too many is the grammar's, not the text's.
            reached.append((len(text), len(reasoning)))
            continue
        ended = event.name in terminal
        if event.text is not None:
            grown = text + event.text if event.growth == "delta" else event.text
            if shrank is None and event.growth != "delta" and not grown.startswith(text):
                shrank = index
            text = grown
        if event.reasoning is not None:
            grown = event.reasoning
            reasoning = reasoning + grown if event.growth == "delta" else grown
        reached.append((len(text), len(reasoning)))
    return Stream(tuple(at), tuple(events), tuple(reached), text, reasoning, shrank)


def _is_text(value: object) -> bool:
    return isinstance(value, str)
