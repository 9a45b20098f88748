"""Wires: what one event of a stream says, as its dialect has it. Sans I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from contract.wire.ndjson import NdjsonDecoder
from contract.wire.paths import look, paths_of
from contract.wire.reader import Names, Notable, code_in, texts_in
from contract.wire.sse import SseDecoder
from loadtests.rows import ILLEGIBLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from contract.wire.dialect import Dialect, DialectFile, TextField

Event = tuple[str, bytes]
"""Name of the SSE field, "" where there is none, and payload."""


class Said(NamedTuple):
    """What an event says: whether answer or reasoning grew by it, whether it ends the stream.

    `failed` is the code of a failure, "" where it has none, None where the event is none.
    """

    answered: bool = False
    reasoned: bool = False
    terminal: bool = False
    failed: str | None = None


MALFORMED: Final = Said(failed="malformed")


class KnownWire:
    """The wire of a built-in flow."""

    __slots__ = ("_answer", "_dialect", "_reasoning")

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._answer = _Track(dialect.text)
        self._reasoning = _Track(dialect.reasoning)

    def read(self, name: str, data: bytes) -> Said | None:
        """Say what an event says; None where that is nothing."""
        try:
            body: object = msgspec.json.decode(data)
        except ILLEGIBLE:
            return MALFORMED
        dialect = self._dialect
        if dialect.name is not None:
            name = str(value_at(body, dialect.name))
        return Said(
            self._answer.grows(name, body),
            self._reasoning.grows(name, body),
            name in dialect.terminal,
            str(value_at(body, dialect.code) or "") if name in dialect.failures else None,
        )


class _Track:
    """One growing text of a stream: tells whether an event made it grow."""

    __slots__ = ("_fields", "_length")

    def __init__(self, fields: Mapping[str, TextField]) -> None:
        self._fields = fields
        self._length = 0

    def grows(self, name: str, body: object) -> bool:
        where = self._fields.get(name)
        text = None if where is None else value_at(body, where.path)
        if where is None or not isinstance(text, str):
            return False
        added = len(text) - (self._length if where.growth == "cumulative" else 0)
        self._length += max(added, 0)
        return added > 0


class DeclaredWire:
    """A wire that is declared in a configuration alone."""

    def __init__(self, file: DialectFile) -> None:
        self._file = file
        self._names = Names(file.event)
        self._parts = Notable(file)
        self._terminal = frozenset(file.terminal)
        self._errors = frozenset(file.errors.events)
        self._code = paths_of(file.errors.code)
        self._lengths: dict[tuple[str | int, ...], int] = {}

    def read(self, name: str, data: bytes) -> Said | None:
        """Say what an event says; None where that is nothing, as of a ping."""
        said = data.decode("utf-8", "replace")
        if said.strip() in self._terminal:
            return Said(terminal=True)  # `[DONE]` is no JSON
        plain = self._file.payload == "text"
        try:
            value: Any = said if plain else msgspec.json.decode(data)
        except ILLEGIBLE:
            return MALFORMED
        name = self._names.of(name, value)
        if name in self._file.skip:
            return None
        part = self._parts.of(value)
        grown = {"text"} if plain and said else self._grown(name, value)
        return Said(
            "text" in grown,
            "reasoning" in grown,
            name in self._terminal or part in self._terminal,
            self._failed(name, part, value),
        )

    def _grown(self, name: str, value: Any) -> set[str]:
        """Say which texts grew: each place of a text that holds all before it grows by itself."""
        grown = set()
        for track, at, whole in texts_in(self._file, name, value):
            place = (track, *at)
            length = len(value_at(value, at))
            if length > (self._lengths.get(place, 0) if whole else 0):
                grown.add(track)
                self._lengths[place] = length
        return grown

    def _failed(self, name: str, part: str | None, value: Any) -> str | None:
        if name in self._errors:
            return code_in(value, self._code)
        if part is None or part not in self._errors:
            return None
        held = (one for path in self._parts.paths[part] for one in look(value, path))
        return next((code_in(one, self._code) for one in held if one is not None), "")


Wire = KnownWire | DeclaredWire


def wire_of(dialect: Dialect) -> Wire:
    """Give what reads the events of a dialect, anew for every stream."""
    return KnownWire(dialect) if dialect.file is None else DeclaredWire(dialect.file)


def value_at(body: Any, path: Sequence[str | int]) -> Any:
    """Give what stands at a path, None where nothing does."""
    for step in path:
        if isinstance(body, dict):
            body = body.get(step)
        elif isinstance(body, list) and isinstance(step, int) and step < len(body):
            body = body[step]
        else:
            return None
    return body


class SseEvents:
    """Cuts server-sent events out of a body."""

    def __init__(self) -> None:
        self._decoder = SseDecoder()

    def feed(self, piece: bytes) -> list[Event]:
        """Take the next bytes, cut anywhere."""
        return [(event.event, event.data) for event in self._decoder.feed(piece)]

    def flush(self) -> list[Event]:
        """End the body: an event without its blank line is none."""
        return []

    @property
    def comments(self) -> int:
        """How many comments there were: keep-alives."""
        return self._decoder.comments


class NdjsonEvents:
    """Cuts lines of JSON out of a body."""

    def __init__(self) -> None:
        self._decoder = NdjsonDecoder()

    def feed(self, piece: bytes) -> list[Event]:
        """Take the next bytes, cut anywhere."""
        return [("", line) for line in self._decoder.feed(piece)]

    def flush(self) -> list[Event]:
        """End the body: a last line without its end counts."""
        return [("", line) for line in self._decoder.flush()]

    @property
    def comments(self) -> int:
        """How many empty lines there were: keep-alives."""
        return self._decoder.blanks


Events = SseEvents | NdjsonEvents


def events_of(dialect: Dialect) -> Events:
    """Give what cuts a body of a dialect into events, anew for every stream."""
    return SseEvents() if dialect.framing == "sse" else NdjsonEvents()


def accepted(dialect: Dialect) -> str:
    """Give the media types a client of a dialect asks for."""
    return "text/event-stream" if dialect.framing == "sse" else "application/x-ndjson, */*"
