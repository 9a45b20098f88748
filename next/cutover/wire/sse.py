"""Server-sent events, sans I/O: a splitter into raw blocks, a decoder, and comments.

Rules: WHATWG HTML, "Interpreting an event stream". Working on bytes is safe because no byte of a
multi-byte UTF-8 sequence equals CR or LF.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import msgspec

from cutover.errors import CutoverError

MOST_BLOCK_BYTES = 8 * 1_048_576
"""Bytes of one block, unless a splitter is made with another limit: a picture fits into a delta."""

_BOM = b"\xef\xbb\xbf"
# Thirty thousand years in milliseconds; int() refuses thousands of digits with an exception.
_MOST_RETRY_DIGITS = 15

# A blank line: two line ends in a row. A CR behind an LF waits for the byte after it, which may be
# its LF; a CR behind a CR does not, so that streams which end lines with CR are not held back.
_BLANK = re.compile(rb"\n(?:\n|\r\n|\r(?=[^\n]))|\r\r")
_SPAN = 2  # bytes of `_BLANK` that may stand at the end of a buffer without matching
_EMPTY = re.compile(rb"\n|\r\n|\r(?=[^\n])")
_FIRST_EMPTY = re.compile(rb"(?:\xef\xbb\xbf)?(?:\n|\r\n|\r(?=[^\n]))")


class BlockTooLong(CutoverError):
    """A stream goes on beyond `limit` bytes without ending an event or a line."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"a stream has an event of more than {limit} bytes, the limit: it cannot be passed on; "
            "raise limits.event_bytes if events may be that large"
        )
        self.limit = limit


@dataclass(slots=True, eq=False)
class SseSplitter:
    """Turns bytes, cut anywhere, into blocks: lines up to and with the blank line that ends them.

    Together the blocks are the input, byte by byte, and do not depend on how it was cut. A block
    holds one event at most; one of comments, or a blank line of its own, holds none. A byte order
    mark stays in the first block.
    """

    limit: int = MOST_BLOCK_BYTES
    _buffer: bytearray = field(default_factory=bytearray)
    _seen: int = 0
    _first: bool = True
    _over: bool = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next bytes; return the blocks they complete.

        Raises `BlockTooLong`, once the blocks before the long one have been returned.
        """
        buffer = self._buffer
        buffer += piece
        blocks: list[bytes] = []
        start = 0
        while not self._over and (end := self._end(start)) is not None:
            if end - start > self.limit:
                self._over = True
                break
            blocks.append(bytes(memoryview(buffer)[start:end]))
            start, self._seen, self._first = end, end, False
        del buffer[:start]
        self._seen = max(0, len(buffer) - _SPAN)
        self._over = self._over or len(buffer) > self.limit
        if self._over and not blocks:
            raise BlockTooLong(self.limit)
        return blocks

    def flush(self) -> list[bytes]:
        """End the stream; return the unterminated rest, if there is one."""
        if self._over:
            raise BlockTooLong(self.limit)
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._seen = 0
        return [rest] if rest else []

    def _end(self, start: int) -> int | None:
        """Return where the block ends that begins at `start`, None if its end is not there yet."""
        empty = (_FIRST_EMPTY if self._first else _EMPTY).match(self._buffer, start)
        found = empty or _BLANK.search(self._buffer, max(start, self._seen))
        return found.end() if found else None


class SseEvent(msgspec.Struct, frozen=True):
    """One dispatched event; `data` as bytes (lines joined by LF), `event` "" when unnamed."""

    data: bytes
    event: str = ""
    id: str = ""
    retry: int | None = None

    @property
    def text(self) -> str:
        """`data` as text, invalid UTF-8 replaced."""
        return self.data.decode("utf-8", "replace")


@dataclass(slots=True, eq=False)
class SseDecoder:
    """Turns bytes, cut anywhere, into events; an unterminated last event is dropped."""

    keepalives: int = 0
    # Pieces, joined once: a line of megabytes would otherwise be copied with every piece.
    _tail: list[bytes] = field(default_factory=list)
    _start: bool = True
    _after_cr: bool = False
    _data: list[bytes] = field(default_factory=list)
    _event: str = ""
    _id: str = ""
    _retry: int | None = None

    def feed(self, piece: bytes) -> list[SseEvent]:
        """Take the next bytes; return the events they complete."""
        if self._start:
            piece = b"".join((*self._tail, piece))
            self._tail.clear()
            if len(piece) < len(_BOM) and _BOM.startswith(piece):
                self._tail.append(piece)
                return []
            self._start = False
            piece = piece.removeprefix(_BOM)
        if self._after_cr and piece:
            piece = piece.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in piece:
            self._after_cr = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in piece:
            self._tail.append(piece)
            return []
        lines = b"".join((*self._tail, piece)).split(b"\n")
        self._tail = [lines.pop()]
        events: list[SseEvent] = []
        data = self._data
        for line in lines:
            if line.startswith(b"data: "):
                data.append(line[6:])
            elif line:
                self._field(line)
            else:
                if data:
                    joined = data[0] if len(data) == 1 else b"\n".join(data)
                    events.append(SseEvent(joined, self._event, self._id, self._retry))
                    self._retry = None
                    data.clear()
                self._event = ""
        return events

    def flush(self) -> list[SseEvent]:
        """End the stream: what was not ended by a blank line is not an event."""
        self._data.clear()
        self._tail.clear()
        return []

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not name:
            self.keepalives += 1
        elif name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= _MOST_RETRY_DIGITS:
            self._retry = int(value)


def events(block: bytes) -> list[SseEvent]:
    """Return the event of one block, or none; ids of earlier blocks are not known to it."""
    return SseDecoder().feed(block)


def comment(text: str) -> bytes:
    """Encode a comment block; `text` is one line."""
    return f": {text}\n\n".encode()


def is_comment(block: bytes) -> bool:
    """Whether a block begins as a comment, and so is no part of what is compared."""
    return block.startswith(b":")
