"""Reading single frames of a wire, those that must be: the terminal one, a failure, the last."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from itertools import accumulate, groupby, takewhile
from typing import TYPE_CHECKING, Any

import msgspec

from contract.flows.declared import PassedEvent
from contract.wire.reader import Names, Notable, texts_in
from contract.wire.sse import SseDecoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from contract.flow import Event, FlowSpec
    from contract.wire.dialect import DialectFile

_UNNAMED = "message"
_PLAIN = re.compile(rb"data: ([^\r\n]+)\n\n")
_DATA_LINE = re.compile(rb"(?:^|[\r\n]|\xef\xbb\xbf)data[:\r\n]")


class FrameReader:
    """What one flow's frames say, as far as a router has to know."""

    def __init__(self, spec: FlowSpec) -> None:
        dialect = spec.dialect
        self._spec = spec
        self._sse = dialect.framing == "sse"
        self._path = dialect.name
        self._events = msgspec.json.Decoder(Any if spec.events is None else spec.events)
        self.terminal = spec.grammar.terminal
        self.failures = dialect.failures
        self._marks = tuple(sorted(set(self._marked(self.terminal | self.failures))))
        self._searches = tuple(_searches(self._marks))

    def _marked(self, names: frozenset[str]) -> Iterator[bytes]:
        """Give what stands in a frame that has one of these names, and in few others."""
        for name in names:
            raw = name.encode()
            if self._path is None:
                yield b"event: " + raw
                yield b"event:" + raw
            else:
                yield b'"' + raw + b'"'
                yield json.dumps(name).encode()  # a name may be written in ASCII alone
            yield b"data: " + raw  # `[DONE]` is a payload
            yield b"data:" + raw

    def notable(self, frame: bytes) -> str | None:
        """Give the event's name if it ends the stream or says that the answer failed."""
        name = self.name(frame)
        return name if name in self.terminal or name in self.failures else None

    def suspect(self, frames: Sequence[bytes]) -> Sequence[int]:
        """Say which of some frames may be notable: the others need not be read."""
        together = frames[0] if len(frames) == 1 else b"".join(frames)
        places = [found.start() for one in self._searches for found in one.finditer(together)]
        if not places:
            return ()
        # Where a mark stands says in which frame: most frames of a long piece are not looked at.
        ends = list(accumulate(map(len, frames)))
        return sorted({bisect_right(ends, at) for at in places})

    def speaks(self, frame: bytes) -> bool:
        """Whether a frame is an event: comments and blank lines keep a connection alive."""
        if not self._sse:
            return bool(frame.strip())
        return frame.startswith(b"data:") or _DATA_LINE.search(frame) is not None

    def name(self, frame: bytes) -> str | None:
        """Give the name of the event in a frame; None where there is none to be read."""
        event, payload = self._payload(frame)
        if payload is None:
            return None
        said = payload.decode("utf-8", "replace").strip()
        if said in self.terminal:
            return said  # `[DONE]` is no JSON
        if self._path is None:
            return event or _UNNAMED
        return _at(payload, self._path)

    def event(self, frame: bytes) -> Event | None:
        """Decode a frame's event; None where it is none of the flow's."""
        _, payload = self._payload(frame)
        if payload is None:
            return None
        try:
            event: Event = self._events.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return event

    def text(self, frame: bytes) -> str | None:
        """Give the text of a frame; None where it carries none, or is none of the flow's."""
        event = self.event(frame) if self.speaks(frame) else None
        return None if event is None else self._spec.text_of(event)

    def _payload(self, frame: bytes) -> tuple[str, bytes | None]:
        if not self._sse:
            return "", frame.strip() or None
        if plain := _PLAIN.fullmatch(frame):
            return "", plain[1]  # as most are
        decoder = SseDecoder()
        # The last frame of a stream may lack its blank line.
        events = decoder.feed(frame) or decoder.feed(b"\n\n")
        return (events[0].event, events[0].data) if events else ("", None)


def _searches(marks: Sequence[bytes]) -> Iterator[re.Pattern[bytes]]:
    """Give what finds marks that are sorted: those that begin alike are found together."""
    for _, alike in groupby(marks, lambda mark: mark[:1]):
        some = list(alike)
        pairs = zip(some[0], some[-1], strict=False)
        head = bytes([one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)])
        tails = b"|".join([re.escape(mark[len(head) :]) for mark in some])
        yield re.compile(re.escape(head) + b"(?:" + tails + b")")


class DeclaredReader(FrameReader):
    """What the frames of a declared flow say: its dialect knows their names, and nobody more."""

    def __init__(self, spec: FlowSpec, file: DialectFile) -> None:
        self._file = file
        self._names = Names(file.event)
        self._parts = Notable(file)
        super().__init__(spec)

    def _marked(self, names: frozenset[str]) -> Iterator[bytes]:
        naming = self._file.event
        if naming.default in names or self._file.payload == "text":
            yield b""  # any frame may be one
        for name in names:
            said = [name, *(raw for raw, meant in naming.names.items() if meant == name)]
            for raw in said:
                yield b"event: " + raw.encode()
                yield b"event:" + raw.encode()
                yield b"data: " + raw.encode()
                yield b"data:" + raw.encode()
                if naming.path is not None:
                    # `true` and numbers stand without quotes; a name may be in ASCII alone.
                    yield raw.encode() if raw != name else b'"' + raw.encode() + b'"'
                    yield json.dumps(raw).encode()
                    yield msgspec.json.encode(raw)
        for paths in self._parts.paths.values():
            yield from (b'"' + path[-1].encode() + b'"' for path in paths)

    def suspect(self, frames: Sequence[bytes]) -> Sequence[int]:
        """Say which of some frames may be notable: the others need not be read."""
        return range(len(frames)) if b"" in self._marks else super().suspect(frames)

    def name(self, frame: bytes) -> str | None:
        """Give the name of the event in a frame, or of a part of it that ends or fails."""
        sse_name, payload = self._payload(frame)
        if payload is None:
            return None
        said = payload.decode("utf-8", "replace")
        if said.strip() in self.terminal:
            return said.strip()
        value = self._value(said)
        name = self._names.of(sse_name, value)
        if name in self.terminal or name in self.failures:
            return name
        return self._parts.of(value) or name

    def event(self, frame: bytes) -> Event | None:
        """Give a frame's event by name."""
        name = self.name(frame)
        return None if name is None else PassedEvent(name)

    def text(self, frame: bytes) -> str | None:
        """Give the answer's text in a frame."""
        if not self.speaks(frame):
            return None
        sse_name, payload = self._payload(frame)
        said = (payload or b"").decode("utf-8", "replace")
        if self._file.payload == "text":
            return said
        value = self._value(said)
        tracks = texts_in(self._file, self._names.of(sse_name, value), value)
        return "".join(_text_at(value, at) for track, at, _ in tracks if track == "text") or None

    def _value(self, said: str) -> Any:
        if self._file.payload == "text":
            return said
        try:
            return msgspec.json.decode(said)
        except (msgspec.DecodeError, RecursionError):
            return None


def reader_of(spec: FlowSpec) -> FrameReader:
    """Make the reader of a flow's frames."""
    file = spec.dialect.file
    return FrameReader(spec) if file is None else DeclaredReader(spec, file)


def _text_at(value: Any, at: tuple[str | int, ...]) -> str:
    for step in at:
        value = value[step]
    return str(value)


def _at(payload: bytes, path: tuple[str, ...]) -> str | None:
    try:
        value: Any = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None
