"""Reading events off a wire, sans I/O: names, texts, endings and failures as a dialect has them.

`WireReader` reads one stream; `EventDecoder` knows what single events of a dialect say and is
shared by all its streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec

from contract.wire.dialect import EVERY, Dialect, Framing, Growth, TextPaths, TextTable
from contract.wire.ndjson import NdjsonDecoder
from contract.wire.paths import Path, path_of, paths_of, places_at, values_at
from contract.wire.sse import SseDecoder, SseEvent
from contract.wire.text import TextDecoder

_DECODERS: Final[Mapping[Framing, Callable[[], SseDecoder | NdjsonDecoder | TextDecoder]]] = {
    "sse": SseDecoder,
    "ndjson": NdjsonDecoder,
    "text": TextDecoder,
}
NO_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of decoding a payload that is no JSON."""

Place = tuple[str | int, ...]
"""Where one value stands in a payload: keys, and indices of lists."""

_NOWHERE: Final[tuple[tuple[Path, ...], Growth]] = ((), "delta")

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


class TextPlace(NamedTuple):
    """Where a piece of a text stands; `track` is the text: text, reasoning or arguments."""

    track: str
    at: Place
    growth: Growth


@dataclass(slots=True)
class WireEvent:
    """One event.

    `data` is the payload as sent, `value` what it decodes to: its text where the dialect has no
    JSON, None where it is a `literal` such as `[DONE]` or cannot be decoded (`error`).
    """

    decoder: EventDecoder
    sse_name: str
    data: bytes
    name: str
    value: Any
    error: Exception | None = None

    @property
    def malformed(self) -> bool:
        """Whether the payload is not the JSON it should be."""
        return self.error is not None

    @property
    def literal(self) -> bool:
        """Whether the payload is the name of a terminal event and no JSON."""
        return self.value is None and self.data.strip() in self.decoder.literals

    @property
    def skipped(self) -> bool:
        """Whether the dialect passes it over, as a ping."""
        return self.name in self.decoder.dialect.skip

    @property
    def part(self) -> str | None:
        """Name of a part of the payload that ends the stream or reports a failure, if any."""
        return self.decoder.part(self.value)

    @property
    def notable(self) -> str | None:
        """Name of the event, else of its part, if that ends the stream or reports a failure."""
        decoder = self.decoder
        if self.name in decoder.terminal or self.name in decoder.failures:
            return self.name
        return self.part

    @property
    def ends(self) -> bool:
        """Whether it ends the stream."""
        return self.name in self.decoder.terminal or self.part in self.decoder.terminal

    @property
    def failure(self) -> str | None:
        """Code of the failure it reports, "" where it has none; None of any other event."""
        return self.decoder.failure(self.name, self.value)

    def texts(self) -> list[TextPlace]:
        """Return where pieces of texts stand in the payload."""
        return self.decoder.texts(self.name, self.value)

    def text(self) -> str | None:
        """Return what it holds of the answer; None where it holds none."""
        pieces = [value_at(self.value, it.at) for it in self.texts() if it.track == "text"]
        return "".join(pieces) if pieces else None


class EventDecoder:
    """What the events of one dialect say; holds no state of a stream.

    `has_deltas` is whether some text comes in pieces.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.terminal = frozenset(dialect.terminal)
        self.failures = frozenset(dialect.errors.events)
        self.name_path: Path = path_of(dialect.event.path or "")
        self.suffix_path: Path = path_of(dialect.event.suffix or "")
        self._json = dialect.payload == "json"
        self.literals = {name.encode(): name for name in dialect.terminal}
        text, reasoning = dialect.text, dialect.reasoning
        if not self._json:  # the payload is the text, whatever its place is called
            text = dict.fromkeys(text or (EVERY,), "")
            reasoning = dict.fromkeys(reasoning, "")
        self._tracks = {
            "text": _paths(text, dialect.growth),
            "reasoning": _paths(reasoning, dialect.growth),
        }
        self._code = paths_of(dialect.errors.code)
        self._ids = {name: paths_of(paths) for name, paths in dialect.ids.items()}
        growths = {growth for table in self._tracks.values() for _, growth in table.values()}
        self.has_deltas = dialect.tools is not None or "delta" in growths

    def event(self, sse_name: str, data: bytes) -> WireEvent:
        """Read one event: its SSE name, "" where there is none, and its payload."""
        if (literal := self.literals.get(data.strip())) is not None:
            return WireEvent(self, sse_name, data, literal, None)
        if not self._json:
            value: Any = data.decode("utf-8", "replace")
            return WireEvent(self, sse_name, data, self.name(sse_name, value), value)
        try:
            value = _decode(data)
        except NO_JSON as error:
            return WireEvent(self, sse_name, data, self.name(sse_name, None), None, error)
        return WireEvent(self, sse_name, data, self.name(sse_name, value), value)

    def name(self, sse_name: str, value: Any) -> str:
        """Name an event by its SSE name and its decoded payload."""
        names, name = self.dialect.event, sse_name
        if self.name_path:
            found = value_at(value, self.name_path)
            if found is None:  # a path with "*" leads to the first
                found = next(values_at(value, self.name_path), None)
            if found is not None:
                name = found if isinstance(found, str) else _encode(found).decode()
        if self.suffix_path:
            found = next(values_at(value, self.suffix_path), None)
            if isinstance(found, str):
                name = f"{name or names.default}.{found}"
        return names.names.get(name, name) or names.default

    @cached_property
    def lines_count(self) -> bool:
        """Whether the `event:` lines of frames say more than the names of events."""
        dialect = self.dialect
        named = bool(self.name_path) and dialect.event.line == "count"
        return named and dialect.framing == "sse"

    def text_paths(self, track: str, name: str) -> tuple[tuple[Path, ...], Growth]:
        """Return where events of a name keep a text, and how it grows."""
        table = self._tracks[track]
        return table.get(name) or table.get(EVERY) or _NOWHERE

    def texts(self, name: str, value: Any) -> list[TextPlace]:
        """Return where pieces of texts stand in an event: answer, reasoning, then arguments."""
        found = []
        for track in self._tracks:
            paths, growth = self.text_paths(track, name)
            for path in paths:
                found += [TextPlace(track, at, growth) for at in places_at(value, path)]
        if self.dialect.tools is not None:
            arguments = (at for path in self._call_paths[1:] for at in places_at(value, path))
            found += [TextPlace("arguments", at, "delta") for at in arguments]
        return found

    def ids(self, name: str, value: Any) -> list[Place]:
        """Return where an event has ids by which a client knows what events belong together."""
        paths = self._ids.get(name, self._ids.get(EVERY, ()))
        return [at for path in paths for at in places_at(value, path)]

    def part(self, value: Any) -> str | None:
        """Name the first part of a payload that ends the stream or reports a failure."""
        if not self.parts:
            return None
        return next((name for name in self.parts if self._held(name, value)), None)

    def failure(self, name: str, value: Any) -> str | None:
        """Return the code of a failure that an event reports, "" where it has none, else None."""
        if name in self.failures:
            return self.code(value)
        part = self.part(value)
        if part is None or part not in self.failures:
            return None
        return next((self.code(held) for held in self._held(part, value)), "")

    def code(self, value: Any) -> str:
        """Return the code at the first of the dialect's places that holds any, "" where none does.

        Of several in a list it is the last: what ended the stream.
        """
        for path in self._code:
            found = [item for item in values_at(value, path) if isinstance(item, str | int)]
            if found:
                return str(found[-1])
        return ""

    def calls_tool(self, value: Any) -> bool:
        """Whether a piece of a tool call stands in a payload: its name, or some arguments."""
        if self.dialect.tools is None:
            return False
        return any(held not in (None, "") for p in self._call_paths for held in values_at(value, p))

    @cached_property
    def parts(self) -> dict[str, tuple[Path, ...]]:
        """Paths of the parts that end a stream or report a failure."""
        notable = self.terminal | self.failures
        return {name: paths_of(p) for name, p in self.dialect.parts.items() if name in notable}

    @cached_property
    def _call_paths(self) -> tuple[Path, ...]:
        """Where the names of tool calls are, then their arguments."""
        tools = self.dialect.tools
        if tools is None:
            raise AssertionError
        at = path_of(tools.at)
        return tuple([at + path for path in paths_of(tools.name) + paths_of(tools.arguments)])

    def _held(self, part: str, value: Any) -> list[Any]:
        found = (held for path in self.parts[part] for held in values_at(value, path))
        return [held for held in found if held is not None]


class WireReader:
    """Reads the events of one stream from bytes that are cut anywhere."""

    def __init__(self, decoder: EventDecoder) -> None:
        self._decoder = decoder
        self._frames = _DECODERS[decoder.dialect.framing]()
        self._lengths: dict[tuple[str, Place], int] = {}
        self._added: dict[str, int] = {}

    @property
    def keepalives(self) -> int:
        """Count of comments of server-sent events, or of blank lines of NDJSON."""
        return self._frames.keepalives

    def feed(self, piece: bytes) -> list[WireEvent]:
        """Take the next bytes; return the events they complete."""
        return self._events(self._frames.feed(piece))

    def flush(self) -> list[WireEvent]:
        """End the stream: a last line counts without its end, no event without its blank line."""
        return self._events(self._frames.flush())

    def _events(self, found: list[SseEvent] | list[bytes]) -> list[WireEvent]:
        event = self._decoder.event
        return [
            event("", it) if isinstance(it, bytes) else event(it.event, it.data) for it in found
        ]

    def grown(self, event: WireEvent) -> set[str]:
        """Return the tracks whose texts an event made longer; call it once an event, in order.

        A cumulative text may stand at several places, each of which grows by itself.
        """
        grown = set()
        for track, at, growth in event.texts():
            length = len(value_at(event.value, at))
            known = 0
            if growth == "cumulative":
                known = max(self._lengths.get((track, at), 0), self._added.get(track, 0))
                self._lengths[track, at] = max(length, known)
            else:
                self._added[track] = self._added.get(track, 0) + length
            if length > known:
                grown.add(track)
        return grown


def value_at(value: Any, at: Sequence[str | int]) -> Any:
    """Return what stands at one place, None where nothing does."""
    for step in at:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def _paths(table: TextTable, default: Growth) -> dict[str, tuple[tuple[Path, ...], Growth]]:
    return {
        name: (paths_of(held.path), held.growth)
        if isinstance(held, TextPaths)
        else (paths_of(held), default)
        for name, held in table.items()
    }
