"""Events: frames read through a dialect, comment frames removed, payloads checked strictly."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import is_
from typing import Any, get_args

import msgspec
from msgspec import inspect

from compare.input.captures import repeats
from contract.equality import MESSAGE, EventStream, PayloadFault, StreamEvent
from contract.wire import EventDecoder, Growth, Wire
from contract.wire.paths import Path, take
from contract.wire.sse import SseDecoder

_AT = re.compile(r"^(?P<why>.*?)(?: - at `(?:key in )?\$(?P<path>.*)`)?$", re.DOTALL)


def not_json(trouble: Exception) -> PayloadFault:
    """Return the fault of a payload that cannot be decoded at all."""
    if isinstance(trouble, RecursionError):
        return PayloadFault("", "is not JSON: nested too deeply")
    return PayloadFault("", f"is not JSON: {str(trouble).lower()}")


NO_OBJECT = PayloadFault("", "is not a JSON object")


class Payloads:
    """Checks the payloads of one wire strictly: missing keys, wrong types, unknown keys."""

    def __init__(self, wire: Wire) -> None:
        self._decoders: Mapping[str, msgspec.json.Decoder[Any]] = {
            name: msgspec.json.Decoder(struct) for name, struct in _structs(wire)
        }

    def fault(self, name: str, data: str | bytes) -> PayloadFault | None:
        """Find what is wrong with an event's payload; of names it does not know, nothing."""
        decoder = self._decoders.get(name)
        if decoder is None:
            return None
        try:
            decoder.decode(data)
        except msgspec.ValidationError as trouble:
            return _fault(str(trouble))
        return None


def _structs(wire: Wire) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """Yield the structs of a wire's events by the names of these."""
    for struct in get_args(wire.events) or filter(None, (wire.events,)):
        yield str(struct.__struct_config__.tag), struct


def _fault(message: str) -> PayloadFault:
    found = _AT.match(message)
    if found is None:
        return PayloadFault("", message)
    why = found["why"]
    return PayloadFault(found["path"] or "", why[:1].lower() + why[1:])


NOT_JSON = "(not JSON)"
NAME, TEXT, REASONING, FAULT, LINES = "@event", "@text", "@reasoning", "@fault", "@lines"
"""Keys of streams in normal form: an event's name, texts, faults, and types by `event:` lines."""
LEARNED_FROM = 96
"""Characters from which a frame is like others rather than the same."""
REMEMBERED_UP_TO = 1_024
REMEMBERED_AT_MOST = 4_096
TEMPLATES_AT_MOST = 6
LEARNED_FREELY = 64
PLACES_TRIED = 4
PROBE = "probe-7f3a"

_decode = msgspec.json.Decoder().decode
# Sorted: the order of keys does not count.
_encode = msgspec.json.Encoder(order="sorted").encode
_ESCAPED = re.compile(r'(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt])*+').fullmatch


Stamped = tuple[int, str]
"""A frame and when it was sent, microseconds since the exchange began."""


@dataclass(slots=True, eq=False)
class Template:
    """Frames that differ in one text alone: what stands around it, read without decoding JSON.

    Streams repeat themselves: frame upon frame is the same but for a text. A template is learned
    from one frame and proved by another: with a word of ours in the text's place, the frame must
    read as the same event with that word as its text. `lead` and `trail` are how much stands
    before and behind the payload; `body` is the last frame up to the end of its text.
    """

    head: str
    tail: str
    event: StreamEvent
    lead: int
    trail: int
    body: str
    text: str

    def count_added(self, frames: Sequence[str], start: int) -> int | None:
        """Count the frames from `start` on that only add text, each to the one before it.

        None where their text needs a closer look.
        """
        tail, size = self.tail, -len(self.tail)
        body, count = frames[start - 1][:size], 0
        for frame in islice(frames, start, None):
            rest = frame.removeprefix(body)
            if rest == frame or rest.removesuffix(tail) == rest:
                break
            body = frame[:size]
            count += 1
        more = body[len(frames[start - 1]) + size :]
        if '"' not in more and "\\" not in more and more.isprintable():
            return count
        cut = any(frame[size - 1] == "\\" for frame in frames[start : start + count])
        return None if cut or not _ESCAPED(more) else count

    def added(self, frame: str) -> str | None:
        """Return what a frame adds to the one before it, as it stands there; None of any other."""
        rest = frame.removeprefix(self.body)
        more = rest.removesuffix(self.tail)
        return None if rest in (frame, more) else more

    def read(self, frame: str, added: str | None) -> StreamEvent | None:
        """Read a frame of the template; None when its text needs a closer look.

        Where it is known what it `added` to the frame before, the rest is not read again.
        """
        size = -len(self.tail)
        text, more = ("", frame[len(self.head) : size]) if added is None else (self.text, added)
        if '"' in more or "\\" in more or not more.isprintable():
            if not _ESCAPED(more):
                return None
            more = _decode(f'"{more}"')
        self.body = frame[:size]
        self.text = text + more
        data = frame[self.lead : len(frame) - self.trail]
        return msgspec.structs.replace(self.event, data=data, text=self.text)


class EventReader:
    """Reads frames of one wire."""

    __slots__ = (
        "_decoder",
        "_learned",
        "_lines",
        "_normal",
        "_payloads",
        "_remembered",
        "_repeatable",
        "_restricted",
        "_tag",
        "_templates",
        "_used",
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
        # ACCEPT, END and their like are met in every exchange.
        self._remembered: dict[str, StreamEvent] = {}
        self._restricted = restricted_texts(spec)
        self._templates: list[Template] = []
        self._learned = self._used = 0

    @property
    def learns(self) -> bool:
        """Whether frames are still looked at for what they have in common: if that pays."""
        return self._learned < LEARNED_FREELY or self._used > self._learned

    def read_all(self, frames: Iterable[Stamped]) -> list[StreamEvent | None]:
        """Read the frames of one run, as `read` does one by one."""
        return [self._next(frame) for _, frame in frames]

    def read_again(
        self,
        frames: Iterable[Stamped],
        others: Sequence[Stamped],
        known: Sequence[StreamEvent | None],
    ) -> list[StreamEvent | None]:
        """Read the frames of one run; those it shares with others are `known`, in their order."""
        repeated = repeats((frame for _, frame in frames), [frame for _, frame in others])
        return [
            self._next(frame) if index is None else known[index]
            for (_, frame), index in zip(frames, repeated, strict=True)
        ]

    def _next(self, frame: str) -> StreamEvent | None:
        """Read the usual frame, as the one before but for more text, in as few steps as can be."""
        last = self._templates[0] if self._templates else None
        if last is not None and (added := last.added(frame)) is not None:
            self._used += 1
            event = last.read(frame, added)
            if event is not None:
                return event
        return self.read(frame)

    def read(self, frame: str) -> StreamEvent | None:
        """Read one frame; None for a comment."""
        if frame.startswith(":"):
            return None
        if len(frame) <= REMEMBERED_UP_TO and (known := self._remembered.get(frame)) is not None:
            return known
        if (template := self.template_of(frame)) is not None:
            self._used += 1
            if template is not self._templates[0]:
                self._templates.remove(template)
                self._templates.insert(0, template)
            if (event := template.read(frame, template.added(frame))) is not None:
                if len(frame) <= LEARNED_FROM:
                    self._remember(frame, event)
                return event
        return self._read(frame)

    def template_of(self, frame: str) -> Template | None:
        """Return the template a frame has, if one was learned."""
        for template in self._templates:
            head, tail = template.head, template.tail
            fits = frame.startswith(head) and frame.endswith(tail)
            if fits and len(frame) >= len(head) + len(tail):
                return template
        return None

    def _read(self, frame: str) -> StreamEvent:
        event = self._decoded(frame)
        if len(frame) <= REMEMBERED_UP_TO:
            self._remember(frame, event)
        learnable = len(frame) > LEARNED_FROM and event.name not in self._restricted
        if learnable and self.learns:
            self._learned += 1
            template = self._learn(frame, event)
            if template is not None:
                self._templates = [template, *self._templates[: TEMPLATES_AT_MOST - 1]]
        return event

    def _remember(self, frame: str, event: StreamEvent) -> None:
        if len(self._remembered) >= REMEMBERED_AT_MOST:
            self._remembered.clear()
        self._remembered[frame] = event

    def _learn(self, frame: str, event: StreamEvent) -> Template | None:
        lead = frame.find(event.data)
        if not event.text or event.fault is not None or lead < 0:
            return None
        text = msgspec.json.encode(event.text)[1:-1].decode()
        at = frame.find(text)
        for _ in range(PLACES_TRIED):
            if at < 0:
                return None
            head, tail = frame[:at], frame[at + len(text) :]
            probed = self._decoded(head + PROBE + tail)
            same = msgspec.structs.replace(event, text=PROBE, data=probed.data)
            if probed == same:
                trail = len(frame) - lead - len(event.data)
                return Template(head, tail, event, lead, trail, head + text, event.text)
            at = frame.find(text, at + 1)
        return None

    def _decoded(self, frame: str) -> StreamEvent:
        sse_name, data = self._payload(frame)
        try:
            value = _decode(data)
        except (msgspec.DecodeError, RecursionError) as trouble:
            return StreamEvent(sse_name or NOT_JSON, data, data.encode(), fault=not_json(trouble))
        if type(value) is not dict:
            return StreamEvent(sse_name or NOT_JSON, data, _encode(value), fault=NO_OBJECT)
        name = self._decoder.name(sse_name, value)
        if self._tag:
            value.pop(self._tag, None)
        fault = self._fault(name, data, value)
        if self._normal:
            types = frozenset(value.pop(LINES, ()))
        else:
            types = types_of(sse_name) if self._decoder.lines_count else frozenset()
        text, growth = self._taken("text", name, value)
        reasoning, thought = self._taken("reasoning", name, value)
        return StreamEvent(
            name,
            data,
            _encode(value) if value else b"{}",
            text,
            reasoning,
            not value and (text is not None or reasoning is not None) and name in self._repeatable,
            growth or thought,
            fault,
            types,
        )

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

    def _taken(
        self, track: str, name: str, value: dict[str, Any]
    ) -> tuple[str | None, Growth | None]:
        """Take a text out of a value, and what that leaves empty."""
        paths, growth = self._decoder.text_paths(track, name)
        pieces = [piece for path in paths for piece in take(value, path, is_text)]
        return "".join(pieces) if pieces else None, growth if paths else None

    def _fault(self, name: str, data: str, value: dict[str, Any]) -> PayloadFault | None:
        if self._normal:
            noted = value.pop(FAULT, None)
            return PayloadFault(*noted) if noted else None
        return self._payloads.fault(name, data)


def types_of(sse_name: str) -> frozenset[str]:
    """Return the type an `event:` line says, none where it is the default."""
    return frozenset() if sse_name in {"", MESSAGE} else frozenset({sse_name})


def restricted_texts(wire: Wire) -> frozenset[str]:
    """Name the events whose structs do not allow any text: that one is allowed proves nothing."""
    decoder = EventDecoder(wire.dialect)
    return frozenset(
        name
        for name, struct in _structs(wire)
        for path in decoder.text_paths("text", name)[0]
        if not _allows_any_text(inspect.type_info(struct), path)
    )


def _allows_any_text(kind: inspect.Type, path: Path) -> bool:
    if isinstance(kind, inspect.UnionType):
        return any(_allows_any_text(member, path) for member in kind.types)
    if not path:
        return kind == inspect.StrType()
    if not isinstance(kind, inspect.StructType):
        return False
    found = (field.type for field in kind.fields if field.encode_name == path[0])
    return any(_allows_any_text(member, path[1:]) for member in found)


def read_stream(reader: EventReader, frames: Iterable[Stamped]) -> EventStream:
    """Read a run's frames."""
    frames = tuple(frames)
    read = reader.read_all(frames)
    return _stream(*_events(frames, read), reader.terminal)


def read_streams(
    reader: EventReader, legacy: Sequence[Stamped], graph: Sequence[Stamped]
) -> tuple[EventStream, EventStream]:
    """Read the frames of two runs; of equal streams only the stamps are read twice."""
    known = reader.read_all(legacy)
    first = _stream(*_events(legacy, known), reader.terminal)
    at, events = _events(graph, reader.read_again(graph, legacy, known))
    if len(events) == len(first.events) and all(map(is_, events, first.events)):
        return first, msgspec.structs.replace(first, at=tuple(at))
    return first, _stream(at, events, reader.terminal)


def _events(
    frames: Sequence[Stamped], read: Sequence[StreamEvent | None]
) -> tuple[list[int], list[StreamEvent]]:
    """Leave out comments."""
    at, events = [at for at, _ in frames], [event for event in read if event is not None]
    if len(events) < len(at):
        at = [at for (at, _), event in zip(frames, read, strict=True) if event is not None]
    return at, events


def _stream(
    at: Sequence[int], events: Sequence[StreamEvent], terminal: frozenset[str]
) -> EventStream:
    text = reasoning = ""
    reached: list[tuple[int, int]] = []
    shrank: int | None = None
    for index, event in enumerate(events):
        more, thought = event.text, event.reasoning
        if more is not None:
            if event.growth == "delta":
                text += more
            else:
                if shrank is None and not more.startswith(text):
                    shrank = index
                text = more
        if thought is not None:
            reasoning = reasoning + thought if event.growth == "delta" else thought
        reached.append((len(text), len(reasoning)))
        if event.name in terminal:
            # Clients stop reading at the end: a frame too many is the grammar's, not the text's.
            reached += reached[-1:] * (len(events) - index - 1)
            break
    return EventStream(tuple(at), tuple(events), tuple(reached), text, reasoning, shrank)


def is_text(value: object) -> bool:
    """Whether a value of a payload is a text."""
    return isinstance(value, str)
