"""Normal form: a recorded stream of any dialect as frames that every layer reads alike.

Pieces of tool calls are put together, each call one event.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from compare.streams.events import (
    FAULT,
    LINES,
    NAME,
    NOT_JSON,
    REASONING,
    TEXT,
    Payloads,
    is_text,
    not_json,
    types_of,
)
from contract.equality import MESSAGE, PayloadFault
from contract.errors import CutoverError
from contract.records import ErrorRecord, Outcome, RunRecord
from contract.wire import (
    EVERY,
    Dialect,
    EventDecoder,
    Kind,
    TextPaths,
    ToolPaths,
    WireEvent,
    WireReader,
)
from contract.wire.paths import (
    Path,
    branches_of,
    drop,
    path_of,
    paths_of,
    take,
    values_at,
    without_empties,
    without_nulls,
)

JSON = dict[str, Any]

TOOL_CALL = "tool_call"
"""The name of a call's event."""
_RESERVED = frozenset({NAME, TEXT, REASONING, FAULT, LINES})
VALUE = "value"
"""Where a payload that is no object stands."""

_TAKEN_OVER = re.compile(rb"^: ?served-by ", re.MULTILINE)
_KINDS: Mapping[Kind, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}
# Sorted: the order of keys does not count.
_encode = msgspec.json.Encoder(order="sorted").encode


class TimesMismatch(CutoverError):
    """A recording has other times than events."""

    def __init__(self, times: int, events: int) -> None:
        super().__init__(f"{times} times for {events} events")
        self.times = times
        self.events = events


@dataclass(frozen=True, slots=True)
class NormalStream:
    """A stream in normal form.

    `frames` are `(at, text)`, at in microseconds or 0; `sent` counts the frames before another
    stack took over.
    """

    frames: tuple[tuple[int, str], ...]
    names: frozenset[str]
    outcome: Outcome
    error: ErrorRecord | None
    sent: int


class Normaliser:
    """Brings streams of one dialect into normal form.

    `payloads` checks them against the structs of a flow, where there is one.
    """

    def __init__(self, dialect: Dialect, payloads: Payloads | None = None) -> None:
        self._dialect = dialect
        self._payloads = payloads
        self._decoder = EventDecoder(dialect)
        plain = {EVERY: VALUE} if dialect.payload == "text" else {}
        self._tracks = (
            (TEXT, _places(dialect.text or plain)),
            (REASONING, _places(dialect.reasoning)),
        )
        self._parts = [(name, paths_of(places)) for name, places in dialect.parts.items()]
        self._ignore = {
            name: branches_of(paths_of(paths)) for name, paths in dialect.ignore.items()
        }
        self._required = {
            name: [(path, path_of(path), kind) for path, kind in kinds.items()]
            for name, kinds in dialect.required.items()
        }
        self._types_count = dialect.framing == "sse" and dialect.event.line == "count"
        self._terminal = self._decoder.terminal
        self._errors = self._decoder.failures

    def stream(self, *pieces: bytes, times: Sequence[int] = ()) -> NormalStream:
        """Read one body, in the pieces in which it came: of plain text each is an event.

        `times` has a moment for each event, or is empty. Raises `TimesMismatch`.
        """
        made = _Building(_ToolCalls(self._dialect.tools) if self._dialect.tools else None)
        taken_over = self._taken_over(b"".join(pieces))
        sent = 0
        read = self.events(*pieces)
        if times and len(times) != len(read):
            raise TimesMismatch(len(times), len(read))
        for index, event in enumerate(read):
            if index == taken_over:
                sent = len(made.events)
            made.at = times[index] if times else 0
            self._read(event, made)
        if made.calls is not None:
            made.calls.finish()
        return self._finished(made, sent)

    def captured(self, run: RunRecord) -> NormalStream:
        """Read the frames of a captured run."""
        # The last frame of a stream may lack its blank line.
        end = b"" if self._dialect.framing == "text" else b"\n\n"
        frames = [(at, frame.encode() + end) for at, frame in run.frames]
        times = [at for at, frame in frames for _ in self.events(frame)]
        pieces = [frame for _, frame in frames]
        try:
            return self.stream(*pieces, times=times)
        except TimesMismatch:
            return self.stream(*pieces)

    def _taken_over(self, body: bytes) -> int:
        """Count the events before the comment that says who goes on, 0 where there is none."""
        found = _TAKEN_OVER.search(body) if self._dialect.framing == "sse" else None
        return len(self.events(body[: found.start()])) if found else 0

    def events(self, *pieces: bytes) -> list[WireEvent]:
        """Cut a body into events, as its framing says."""
        reader = WireReader(self._decoder)
        return [*(event for piece in pieces for event in reader.feed(piece)), *reader.flush()]

    def _finished(self, made: _Building, sent: int) -> NormalStream:
        events = made.events
        for _, event in events:  # what does not count in events of its name
            if ignored := self._ignore.get(str(event[NAME])):
                own = {key: event[key] for key in _RESERVED & event.keys()}
                drop(event, ignored)
                event.update(own)
        outcome: Outcome = "completed"
        if made.error is not None:
            outcome = "failed"
        elif not any(not self._terminal or event[NAME] in self._terminal for _, event in events):
            outcome = "truncated"  # an empty body is none, whatever ends the streams of a wire
        return NormalStream(
            tuple((at, _encode(event).decode()) for at, event in events),
            frozenset(str(event[NAME]) for _, event in events),
            outcome,
            made.error,
            sent,
        )

    def _read(self, event: WireEvent, made: _Building) -> None:
        try:
            text = event.data.decode()
        except UnicodeDecodeError as error:
            fault = PayloadFault("", f"is not UTF-8 at byte {error.start}")
            shown = event.data.decode("utf-8", "replace")
            made.add({NAME: event.sse_name or NOT_JSON, FAULT: fault, VALUE: shown})
            return
        if event.literal:
            made.add({NAME: event.name})
            self._typed(event, len(made.events) - 1, made)
        elif event.error is not None:
            fault = not_json(event.error)
            made.add({NAME: event.sse_name or NOT_JSON, FAULT: fault, VALUE: text})
        elif not event.skipped:
            value = event.value
            holds = isinstance(value, dict | list)
            self._event(event, value if holds else {VALUE: value}, made)

    def _event(self, event: WireEvent, value: Any, made: _Building) -> None:
        name = event.name
        # A name says nothing else.
        take(value, self._decoder.name_path, lambda found: found is not None)
        take(value, self._decoder.suffix_path, is_text)
        fault = self._fault(name, event.data, value)
        if self._dialect.empty == "ignore":
            value = without_nulls(value)
        code = self._decoder.code(value) if name in self._errors else ""
        shared, pieces = self._shared(value, made)
        drop(value, self._ignore.get(EVERY, {}))
        drop(value, self._ignore.get(name, {}))
        payload = self._payload(name, value)
        if self._dialect.empty == "ignore":
            payload = without_empties(payload)
        if fault is not None:
            payload[FAULT] = fault
        # A frame of which nothing is left was only there for what it held.
        nameless = bool(self._parts) and name == self._dialect.event.default
        first = len(made.events)
        if len(payload) > 1 or name in self._terminal or not (pieces or shared or nameless):
            made.add(payload)
        if self._decoder.lines_count:
            made.events += shared
            self._typed(event, first, made)
        else:  # the line names what is left of the frame, but not its parts
            first = len(made.events)
            made.events += shared
            if shared:
                self._typed(event, first, made)
        if name in self._errors:
            made.failed(code)

    def _typed(self, event: WireEvent, first: int, made: _Building) -> None:
        """Note the `event:` line of the events from `first` on, which have other names."""
        if self._types_count:
            made.typed(first, types_of(event.sse_name) or {MESSAGE})

    def _shared(self, value: Any, made: _Building) -> tuple[list[tuple[int, JSON]], bool]:
        """Take out what is an event of its own; returns whether there were pieces of calls, too."""
        events: list[tuple[int, JSON]] = []
        pieces = False
        if made.calls is not None:
            started, pieces = made.calls.feed(value)
            events += [(made.at, call) for call in started]
            for call in started:
                call[NAME] = TOOL_CALL
        for name, paths in self._parts:
            for path in paths:
                for part in take(value, path):
                    if part is None:
                        continue  # "finish_reason": null says that there is none yet
                    held = part if isinstance(part, dict) else {path[-1]: part}
                    if name in self._errors:
                        made.failed(self._decoder.code(held))
                    events.append((made.at, {**held, NAME: name}))
        return events, pieces

    def _fault(self, name: str, data: bytes, value: Any) -> PayloadFault | None:
        if self._payloads is not None:
            return self._payloads.fault(name, data)
        for written, path, kind in self._required.get(name, self._required.get(EVERY, ())):
            found = list(values_at(value, path))
            if not found:
                return PayloadFault(f".{written}", "is missing")
            if not all(_is(kind, item) for item in found):
                return PayloadFault(f".{written}", f"is no {kind}")
        return None

    def _payload(self, name: str, value: Any) -> JSON:
        event: JSON = {NAME: name}
        for key, places in self._tracks:
            paths = places.get(name) or places.get(EVERY) or ()
            words = [word for path in paths for word in take(value, path, is_text)]
            if words:
                event[key] = "".join(words)
        if isinstance(value, list):
            return {**event, VALUE: value}
        return event | {key: held for key, held in value.items() if key not in _RESERVED}


@dataclass(slots=True)
class _Building:
    """What has been read of a stream."""

    calls: _ToolCalls | None
    at: int = 0
    events: list[tuple[int, JSON]] = field(default_factory=list)
    error: ErrorRecord | None = None

    def add(self, event: JSON) -> None:
        self.events.append((self.at, event))

    def typed(self, first: int, types: Collection[str]) -> None:
        """Note the types of the events from `first` on; a mere piece has that of the last one."""
        piece = first == len(self.events)
        for _, event in self.events[-1 if piece else first :]:
            held = sorted({*types, *(event.get(LINES, (MESSAGE,)) if piece else ())})
            if held != [MESSAGE]:
                event[LINES] = held

    def failed(self, code: str) -> None:
        if self.error is None:
            self.error = ErrorRecord(code)


def _places(table: Mapping[str, str | tuple[str, ...] | TextPaths]) -> dict[str, tuple[Path, ...]]:
    return {
        name: paths_of(place.path if isinstance(place, TextPaths) else place)
        for name, place in table.items()
    }


def _is(kind: Kind, value: object) -> bool:
    # To Python True is an int.
    return isinstance(value, _KINDS[kind]) and (kind == "boolean") == isinstance(value, bool)


class _ToolCalls:
    """The tool calls of one stream, as they grow; a call stands where its first piece stood."""

    def __init__(self, places: ToolPaths) -> None:
        self._at = path_of(places.at)
        self._index = path_of(places.index)
        self._id = path_of(places.id)
        self._name = path_of(places.name)
        self._arguments = paths_of(places.arguments)
        self._open: dict[str, _OpenCall] = {}
        self._calls: list[_OpenCall] = []

    def feed(self, value: Any) -> tuple[list[JSON], bool]:
        """Take the pieces out of a payload; returns the calls they begin, and if there were any.

        A call fills as pieces arrive; it is whole after `finish`.
        """
        if self._at:
            pieces = [piece for piece in take(value, self._at) if isinstance(piece, dict)]
        else:  # a piece shares the payload of an event
            paths = self._name, *self._arguments
            held = (found for path in paths for found in values_at(value, path))
            pieces = [value] if any(found is not None for found in held) else []
        started = [call for piece in pieces if (call := self._started(piece)) is not None]
        return started, bool(pieces)

    def _started(self, piece: JSON) -> JSON | None:
        """Take in a piece; returns the call it begins.

        What a piece that is nothing else holds besides belongs to the call.
        """
        indices = take(piece, self._index) if self._at else list(values_at(piece, self._index))
        index, known = _first(indices), _first(take(piece, self._id, is_text))
        name = _first(take(piece, self._name, is_text))
        call = self._open.get(str(index))
        # Some providers repeat the id with every piece; another one is another call.
        new = call is None or (bool(known) and call.event.get("id") not in {None, known})
        if call is None or new or (index is None and name):
            new, call = True, _OpenCall()
            self._open[str(index)] = call
            self._calls.append(call)
        arguments = [held for path in self._arguments for held in take(piece, path)]
        call.add({"index": index, "id": known, "name": name}, arguments)
        if self._at:
            for key, held in piece.items():
                call.event.setdefault(key, held)
        return call.event if new else None

    def finish(self) -> None:
        """Read the arguments that arrived in pieces; what is no JSON stays text."""
        for call in self._calls:
            if call.written:
                text = "".join(call.written)
                try:
                    call.event["arguments"] = msgspec.json.decode(text)
                except (msgspec.DecodeError, RecursionError):
                    call.event["arguments"] = text


@dataclass(slots=True)
class _OpenCall:
    """A tool call: its event so far, and the pieces of its arguments."""

    event: JSON = field(default_factory=dict)
    written: list[str] = field(default_factory=list)

    def add(self, found: JSON, arguments: list[Any]) -> None:
        for key, held in found.items():
            if held is not None and held != "":
                self.event.setdefault(key, held)
        for piece in arguments:
            if isinstance(piece, str):
                self.written.append(piece)
            elif piece is not None:
                self.event["arguments"] = piece


def _first(found: list[Any]) -> Any:
    return found[0] if found else None
