"""Calls: the pieces of tool calls put together, each call one event."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from compare.streams.events import NOT_JSON
from compare.streams.payloads import Fault, Payloads, not_json
from contract.errors import CutoverError
from contract.records import ErrorRecord, Outcome
from contract.wire.dialect import EVERY, DialectFile, Kind, TextPaths, ToolPaths
from contract.wire.ndjson import NdjsonDecoder
from contract.wire.paths import (
    Path,
    branches_of,
    drop,
    look,
    path_of,
    paths_of,
    take,
    without_empties,
    without_nulls,
)
from contract.wire.reader import Names, code_in
from contract.wire.sse import SseDecoder

TOOL_JSON = dict[str, Any]
TOOL_CALL = "tool_call"
"""The name of a call's event."""


class Calls:
    """The tool calls of one stream, as they grow; a call stands where its first piece stood."""

    def __init__(self, places: ToolPaths) -> None:
        self._at = path_of(places.at)
        self._index = path_of(places.index)
        self._id = path_of(places.id)
        self._name = path_of(places.name)
        self._arguments = path_of(places.arguments)
        self._open: dict[str, TOOL_JSON] = {}
        self._pieces: list[tuple[TOOL_JSON, list[str]]] = []

    def feed(self, value: TOOL_JSON) -> tuple[list[TOOL_JSON], bool]:
        """Take the pieces out of a payload; give the calls they begin, and whether there were any.

        A call fills as pieces arrive; it is whole after `finish`.
        """
        if self._at:
            pieces = [piece for piece in take(value, self._at) if isinstance(piece, dict)]
            begun = [self._whole(piece) for piece in pieces]
        else:
            pieces = [value] if self._is_piece(value) else []
            begun = [self._own(value) for _ in pieces]
        return [call for call in begun if call is not None], bool(pieces)

    def _is_piece(self, value: TOOL_JSON) -> bool:
        return any(_has(value, path) for path in (self._id, self._name, self._arguments))

    def _whole(self, piece: TOOL_JSON) -> TOOL_JSON | None:
        """Take in a piece that is nothing else: what it holds besides belongs to the call."""
        index = _first(take(piece, self._index))
        call, new = self._call(index, piece)
        for key, held in piece.items():
            call.setdefault(key, held)
        return call if new else None

    def _own(self, value: TOOL_JSON) -> TOOL_JSON | None:
        """Take in a piece that shares the payload of an event."""
        call, new = self._call(_first(list(look(value, self._index))), value)
        return call if new else None

    def _call(self, index: Any, piece: TOOL_JSON) -> tuple[TOOL_JSON, bool]:
        known = _first(take(piece, self._id, _is_tool_text))
        name = _first(take(piece, self._name, _is_tool_text))
        call = self._open.get(str(index))
        # Some providers repeat the id with every piece; another one is another call.
        new = call is None or (bool(known) and call.get("id") not in {None, known})
        new = new or (index is None and bool(name))
        if call is None or new:
            call = {}
            self._open[str(index)] = call
            self._pieces.append((call, []))
        _keep(call, {"index": index, "id": known, "name": name})
        self._argue(call, take(piece, self._arguments))
        return call, new

    def _argue(self, call: TOOL_JSON, arguments: list[Any]) -> None:
        written = next(texts for made, texts in self._pieces if made is call)
        for piece in arguments:
            if isinstance(piece, str):
                written.append(piece)
            elif piece is not None:
                call["arguments"] = piece

    def finish(self) -> None:
        """Read the arguments that arrived in pieces; what is no JSON stays text."""
        for call, texts in self._pieces:
            if texts:
                call["arguments"] = _read("".join(texts))


def _read(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _keep(call: TOOL_JSON, found: TOOL_JSON) -> None:
    for key, held in found.items():
        if held is not None and held != "":
            call.setdefault(key, held)


def _has(value: TOOL_JSON, path: Path) -> bool:
    return any(isinstance(found, str) for found in look(value, path))


def _first(found: list[Any]) -> Any:
    return found[0] if found else None


def _is_tool_text(value: object) -> bool:
    return isinstance(value, str)


NAME, TEXT, REASONING, FAULT = "@event", "@text", "@reasoning", "@fault"
_RESERVED = frozenset({NAME, TEXT, REASONING, FAULT})
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
# Sorted: the order of keys says nothing.
_encode = msgspec.json.Encoder(order="sorted").encode

JSON = dict[str, Any]


class TimesAstray(CutoverError):
    """A recording has other times than events."""

    def __init__(self, times: int, events: int) -> None:
        super().__init__(f"{times} times for {events} events")
        self.times = times
        self.events = events


@dataclass(frozen=True, slots=True)
class Piece:
    """One event as it was framed: its SSE name, its payload."""

    sse_name: str
    data: bytes


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


def pieces_of(file: DialectFile, body: bytes) -> list[Piece]:
    """Cut a body into events, as its framing says."""
    if file.framing == "ndjson":
        lines = NdjsonDecoder()
        return [Piece("", line) for line in (*lines.feed(body), *lines.flush())]
    return [Piece(event.event, event.data) for event in SseDecoder().feed(body)]


class Normaliser:
    """Brings streams of one dialect into normal form.

    `payloads` checks them against the structs of a flow, where there is one.
    """

    def __init__(self, file: DialectFile, payloads: Payloads | None = None) -> None:
        self._file = file
        self._payloads = payloads
        self._names = Names(file.event)
        plain = {EVERY: VALUE} if file.payload == "text" else {}
        self._text = _places(file.text or plain)
        self._reasoning = _places(file.reasoning)
        self._parts = [(name, paths_of(places)) for name, places in file.parts.items()]
        self._ignore = {name: branches_of(paths_of(paths)) for name, paths in file.ignore.items()}
        self._required = {
            name: [(path, path_of(path), kind) for path, kind in kinds.items()]
            for name, kinds in file.required.items()
        }
        self._terminal = frozenset(file.terminal)
        self._errors = frozenset(file.errors.events)
        self._code = paths_of(file.errors.code)
        self._skip = frozenset(file.skip)

    def stream(self, body: bytes, times: Sequence[int] = ()) -> NormalStream:
        """Read one body; `times` has a moment for each of its events, or is empty.

        Raises `TimesAstray`.
        """
        made = _Made(Calls(self._file.tools) if self._file.tools else None)
        taken_over = self._taken_over(body)
        sent = 0
        pieces = pieces_of(self._file, body)
        if times and len(times) != len(pieces):
            raise TimesAstray(len(times), len(pieces))
        for index, piece in enumerate(pieces):
            if index == taken_over:
                sent = len(made.events)
            made.at = times[index] if times else 0
            self._piece(piece, made)
        if made.calls is not None:
            made.calls.finish()
        return self._finished(made, sent)

    def _taken_over(self, body: bytes) -> int:
        """Count the events before the comment that says who goes on, 0 where there is none."""
        found = _TAKEN_OVER.search(body) if self._file.framing == "sse" else None
        return len(pieces_of(self._file, body[: found.start()])) if found else 0

    def _finished(self, made: _Made, sent: int) -> NormalStream:
        events = [(at, self._cleaned(event)) for at, event in made.events]
        outcome: Outcome = "completed"
        if made.error is not None:
            outcome = "failed"
        elif self._terminal and not any(event[NAME] in self._terminal for _, event in events):
            outcome = "truncated"
        return NormalStream(
            tuple((at, _encode(event).decode()) for at, event in events),
            frozenset(str(event[NAME]) for _, event in events),
            outcome,
            made.error,
            sent,
        )

    def _cleaned(self, event: JSON) -> JSON:
        """Leave out of a finished event what does not count in events of its name."""
        drop(event, self._ignore.get(str(event[NAME]), {}))
        return event

    def _piece(self, piece: Piece, made: _Made) -> None:
        try:
            data = piece.data.decode()
        except UnicodeDecodeError as trouble:
            fault = Fault("", f"is not UTF-8 at byte {trouble.start}")
            self._illegible(piece, piece.data.decode("utf-8", "replace"), fault, made)
            return
        if data in self._terminal:
            made.add({NAME: data})
            return
        try:
            value = msgspec.json.decode(data) if self._file.payload == "json" else data
        except (msgspec.DecodeError, RecursionError) as trouble:
            self._illegible(piece, data, not_json(trouble), made)
            return
        self._event(piece, value if isinstance(value, dict) else {VALUE: value}, made)

    def _illegible(self, piece: Piece, data: str, fault: Fault, made: _Made) -> None:
        made.add({NAME: piece.sse_name or NOT_JSON, FAULT: fault, VALUE: data})

    def _event(self, piece: Piece, value: JSON, made: _Made) -> None:
        name = self._name_of(piece, value)
        if name in self._skip:
            return
        fault = self._fault(name, piece, value)
        if self._file.empty == "ignore":
            value = without_nulls(value)
        code = code_in(value, self._code) if name in self._errors else ""
        shared, pieces = self._shared(value, made)
        drop(value, self._ignore.get(EVERY, {}))
        drop(value, self._ignore.get(name, {}))
        event = self._worded(name, value)
        if self._file.empty == "ignore":
            event = without_empties(event)
        if fault is not None:
            event[FAULT] = fault
        if len(event) > 1 or not self._spent(name, pieces=pieces, shared=bool(shared)):
            made.add(event)
        made.events += shared
        if name in self._errors:
            made.failed(code)

    def _spent(self, name: str, *, pieces: bool, shared: bool) -> bool:
        """Whether a frame of which nothing is left was only there for what it held."""
        nameless = bool(self._parts) and name == self._file.event.default
        return name not in self._terminal and (pieces or shared or nameless)

    def _shared(self, value: JSON, made: _Made) -> tuple[list[tuple[int, JSON]], bool]:
        """Take out what is an event of its own; say whether there were pieces of calls."""
        events: list[tuple[int, JSON]] = []
        pieces = False
        if made.calls is not None:
            begun, pieces = made.calls.feed(value)
            events += [(made.at, call) for call in begun]
            for call in begun:
                call[NAME] = TOOL_CALL
        for name, paths in self._parts:
            for path in paths:
                for part in take(value, path):
                    if part is None:
                        continue  # "finish_reason": null says that there is none yet
                    held = part if isinstance(part, dict) else {path[-1]: part}
                    if name in self._errors:
                        made.failed(code_in(held, self._code))
                    events.append((made.at, {**held, NAME: name}))
        return events, pieces

    def _name_of(self, piece: Piece, value: JSON) -> str:
        name = self._names.of(piece.sse_name, value)
        take(value, self._names.path, _is_something)  # a name says nothing else
        return name

    def _fault(self, name: str, piece: Piece, value: JSON) -> Fault | None:
        if self._payloads is not None:
            return self._payloads.fault(name, piece.data)
        for written, path, kind in self._required.get(name, self._required.get(EVERY, ())):
            found = list(look(value, path))
            if not found:
                return Fault(f".{written}", "is missing")
            if not all(_is(kind, item) for item in found):
                return Fault(f".{written}", f"is no {kind}")
        return None

    def _worded(self, name: str, value: JSON) -> JSON:
        event: JSON = {NAME: name}
        for key, places in ((TEXT, self._text), (REASONING, self._reasoning)):
            paths = places.get(name) or places.get(EVERY) or ()
            words = [word for path in paths for word in take(value, path, _is_text)]
            if words:
                event[key] = "".join(words)
        return event | {key: held for key, held in value.items() if key not in _RESERVED}


@dataclass(slots=True)
class _Made:
    """What has been read of a stream."""

    calls: Calls | None
    at: int = 0
    events: list[tuple[int, JSON]] = field(default_factory=list)
    error: ErrorRecord | None = None

    def add(self, event: JSON) -> None:
        self.events.append((self.at, event))

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


def _is_something(value: object) -> bool:
    return value is not None


def _is_text(value: object) -> bool:
    return isinstance(value, str)
