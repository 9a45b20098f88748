"""Frames of a stream that is passed on: split at their ends, and read only where they must be.

Nothing is parsed on the way and no byte is changed: the frames, one after the other, are the
bytes that were fed. The few that can end a stream or report a failure are found by their marks.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise, takewhile

import msgspec

from contract.errors import CutoverError
from contract.wire.dialect import Dialect, Framing
from contract.wire.reader import EventDecoder, WireEvent
from contract.wire.sse import SseDecoder
from contract.wire.text import torn

MAX_FRAME_BYTES = 4 * 1_048_576
"""Beyond, a frame is a stream without frames."""

_LF = b"\n"
_BLANK = b"\n\n"
# Two line ends, of CRLF, LF and CR; a CRLF is one line end and never taken for two.
_ANY_BLANK = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
# The LF that belongs to it is under way.
_TORN = b"\r\n\r"

_PLAIN = re.compile(rb"data: ([^\r\n]+)\n\n")
_DATA_LINE = re.compile(rb"(?:^|[\r\n]|\xef\xbb\xbf)data[:\r\n]")


class FrameTooLarge(CutoverError):
    """A frame does not end."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes without the end of a frame; the limit is {MAX_FRAME_BYTES}")
        self.size = size


def frame_of(framing: Framing, data: str, event: str = "") -> bytes:
    """Return the frame of a payload; `event` is its SSE name, "" where it has none."""
    if framing != "sse":
        return data.encode() + b"\n" * (framing == "ndjson")
    head = f"event: {event}\n" if event else ""
    lines = "".join(f"data: {line}\n" for line in data.split("\n"))
    return f"{head}{lines}\n".encode()


class FrameSplitter:
    """Takes bytes cut anywhere, returns frames with their ends.

    Frames of an event stream end with a blank line, frames of NDJSON are lines, those of plain text
    are what came at once, in whole characters.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._sse = dialect.framing == "sse"
        self._plain = dialect.framing == "text"
        # Grows in place: a frame of megabytes would otherwise be copied with every piece.
        self._tail = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next bytes; return the frames they complete. Raises `FrameTooLarge`."""
        tail = self._tail
        if tail:
            seen = len(tail)
            tail += piece
            if not self._ends_after(seen):
                if len(tail) > MAX_FRAME_BYTES:
                    raise FrameTooLarge(len(tail))
                return []
            piece = bytes(tail)
            tail.clear()
        frames = self._split(piece)
        tail += frames.pop()
        return frames

    def flush(self) -> bytes:
        """End the stream; return the bytes since the last frame."""
        rest = bytes(self._tail)
        self._tail.clear()
        return rest

    def _ends_after(self, seen: int) -> bool:
        """Whether a frame ends behind the first `seen` bytes of the tail."""
        if self._plain:
            return True
        if not self._sse:
            return self._tail.find(_LF, seen) >= 0
        # A blank line may have begun just before.
        return _ANY_BLANK.search(self._tail, max(0, seen - len(_TORN))) is not None

    def _split(self, piece: bytes) -> list[bytes]:
        """Cut bytes into frames and a rest, which may be empty."""
        if self._plain:
            end = len(piece) - torn(piece)
            return [*([piece[:end]] if end else []), piece[end:]]
        if not self._sse:
            return _cut(piece, _LF)
        if b"\r" not in piece:
            return _of_one_line(piece) or _cut(piece, _BLANK)
        ends = [found.end() for found in _ANY_BLANK.finditer(piece)]
        if piece.endswith(_TORN) and ends and ends[-1] == len(piece):
            ends.pop()
        return [piece[start:end] for start, end in pairwise([0, *ends, len(piece)])]


def _of_one_line(piece: bytes) -> list[bytes]:
    """Cut where each frame is one line, as most are: lines are found faster than blank ones."""
    lines = piece.split(_LF)
    if len(lines) % 2 == 0 or any(lines[1::2]):
        return []
    rest = lines.pop()
    return [*[line + _BLANK for line in lines[::2]], rest]


def _cut(piece: bytes, end: bytes) -> list[bytes]:
    *frames, rest = piece.split(end)
    return [*[frame + end for frame in frames], rest]


class FrameReader:
    """Reads single frames of one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self.decoder = EventDecoder(dialect)
        self.terminal = self.decoder.terminal
        self.failures = self.decoder.failures
        self._sse = dialect.framing == "sse"
        self._plain = dialect.framing == "text"
        marks = sorted(set(_marks(self.decoder)))
        self._any_may_be_notable = marks[:1] == [b""]
        self._searches = tuple(_searches(marks))

    def suspects(self, frames: Sequence[bytes]) -> Sequence[int]:
        """Return which of some frames may be notable: the others need not be read."""
        if self._any_may_be_notable:
            return range(len(frames))
        together = frames[0] if len(frames) == 1 else b"".join(frames)
        marks = [found.start() for one in self._searches for found in one.finditer(together)]
        if not marks:
            return ()
        # The position of a mark tells the frame: most frames of a long piece are not read.
        ends = list(accumulate(map(len, frames)))
        return sorted({bisect_right(ends, mark) for mark in marks})

    def is_event(self, frame: bytes) -> bool:
        """Whether a frame is an event: comments and blank lines keep a connection alive."""
        if not self._sse:
            return bool(frame if self._plain else frame.strip())
        return frame.startswith(b"data:") or _DATA_LINE.search(frame) is not None

    def event(self, frame: bytes) -> WireEvent | None:
        """Read the event in a frame; None where there is none. It may lack its blank line."""
        if not self._sse:
            line = frame if self._plain else frame.strip()
            return self.decoder.event("", line) if line else None
        if plain := _PLAIN.fullmatch(frame):
            return self.decoder.event("", plain[1])  # as most are
        sse = SseDecoder()
        events = sse.feed(frame) or sse.feed(b"\n\n")
        return self.decoder.event(events[0].event, events[0].data) if events else None

    def notable(self, frame: bytes) -> str | None:
        """Return the name of a frame's event if it ends the stream or reports a failure."""
        event = self.event(frame)
        return None if event is None else event.notable


def _marks(decoder: EventDecoder) -> Iterator[bytes]:
    """Yield byte strings of which each notable frame holds one, and few other frames do."""
    dialect = decoder.dialect
    notable = decoder.terminal | decoder.failures
    if not notable:
        return
    if dialect.event.default in notable or dialect.payload == "text":
        yield b""  # any frame may be one
    for name in notable:
        translated = (raw for raw, meant in dialect.event.names.items() if meant == name)
        for raw in (name, *translated):
            for field in (b"event:", b"data:"):  # `[DONE]` is a payload
                yield field + b" " + raw.encode()
                yield field + raw.encode()
            if decoder.name_path:
                # `true` and numbers stand without quotes; a name may be in ASCII alone.
                yield raw.encode() if raw != name else b'"' + raw.encode() + b'"'
                yield json.dumps(raw).encode()
                yield msgspec.json.encode(raw)
    for paths in decoder.parts.values():
        yield from (b'"' + path[-1].encode() + b'"' for path in paths)


def _searches(marks: Sequence[bytes]) -> Iterator[re.Pattern[bytes]]:
    """Yield patterns for sorted marks: those that begin alike are found together."""
    for _, group in groupby(marks, lambda mark: mark[:1]):
        alike = list(group)
        pairs = zip(alike[0], alike[-1], strict=False)
        head = bytes([one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)])
        tails = b"|".join([re.escape(mark[len(head) :]) for mark in alike])
        yield re.compile(re.escape(head) + b"(?:" + tails + b")")
