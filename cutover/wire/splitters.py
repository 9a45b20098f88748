"""Splitters, sans I/O: bytes cut anywhere become events, lines of JSON, or pieces of plain text.

Rules of events: WHATWG HTML, "Interpreting an event stream". Working on bytes is safe because no
byte of a multi-byte UTF-8 sequence equals CR or LF.
"""

import codecs
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import msgspec

from cutover.errors import CutoverError

MOST_BLOCK_BYTES = 8 * 1_048_576
"""Bytes of one block, unless a splitter is made with another limit: a picture fits into a delta."""

_BOM = b"\xef\xbb\xbf"
# White space of JSON (RFC 8259); bytes.strip() would take form feeds, too.
_SPACE = b" \t\r\n"

# A blank line: two line ends in a row. A CR behind an LF waits for the byte after it, which may be
# its LF; a CR behind a CR does not, so that streams which end lines with CR are not held back.
_BLANK = re.compile(rb"\n(?:\n|\r\n|\r(?=[^\n]))|\r\r")
_SPAN = 2  # bytes of `_BLANK` that may stand at the end of a buffer without matching
_LINES = re.compile(rb"(?:[^\r\n]+\n)+\n")  # most blocks, found faster
_EMPTY = re.compile(rb"\n|\r\n|\r(?=[^\n])")  # what keeps a connection alive


class BlockTooLong(CutoverError):
    """A stream goes on beyond `limit` bytes without ending an event or a line."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"a stream has an event of more than {limit} bytes, the limit: it cannot be passed on; "
            "raise limits.event_bytes if events may be that large"
        )
        self.limit = limit


@dataclass(slots=True, eq=False)
class Splitter(ABC):
    """Turns bytes, cut anywhere, into blocks: together they are the input, byte by byte."""

    limit: int = MOST_BLOCK_BYTES
    _buffer: bytearray = field(default_factory=bytearray)
    _seen: int = 0
    _over: bool = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next bytes; return the blocks they complete.

        Raises `BlockTooLong`, once the blocks before the long one have been returned.
        """
        buffer = self._buffer
        buffer += piece
        blocks: list[bytes] = []
        start = 0
        while (end := self._end(start)) is not None and end - start <= self.limit:
            blocks.append(bytes(memoryview(buffer)[start:end]))
            start = self._seen = end
        del buffer[:start]
        self._seen = max(0, len(buffer) - _SPAN)
        self._over = len(buffer) > self.limit
        if self._over and not blocks:
            raise BlockTooLong(self.limit)
        return blocks

    def flush(self) -> list[bytes]:
        """End the stream; return the unterminated rest, if there is one. Raises `BlockTooLong`."""
        if self._over:
            raise BlockTooLong(self.limit)
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._seen = 0
        return [rest] if rest else []

    @abstractmethod
    def _end(self, start: int) -> int | None:
        """Return where the block ends that begins at `start`, None if its end is not there yet."""


class SseSplitter(Splitter):
    """Splits into lines up to and with the blank line that ends them.

    A block holds one event at most; one of comments, or a blank line of its own, holds none. A byte
    order mark stays in the first block.
    """

    def _end(self, start: int) -> int | None:
        fresh = self._seen == start  # else it would be read anew with each piece of a long block
        found = fresh and _LINES.match(self._buffer, start)
        found = found or _EMPTY.match(self._buffer, start)
        found = found or _BLANK.search(self._buffer, max(start, self._seen))
        return found.end() if found else None


class LineSplitter(Splitter):
    """Splits into lines up to and with their LF.

    A CR alone ends no line: to JSON it is white space.
    """

    def _end(self, start: int) -> int | None:
        return self._buffer.find(b"\n", max(start, self._seen)) + 1 or None


class TextSplitter:
    """Turns bytes, cut anywhere, into pieces of whole characters; bytes that are none pass, too.

    The pieces follow the input's cuts, since plain text has no frames.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def feed(self, piece: bytes, *, last: bool = False) -> list[bytes]:
        """Take the next bytes; return what is whole of them, in one piece."""
        whole = self._decoder.decode(piece, last).encode("utf-8", "surrogateescape")
        return [whole] if whole else []

    def flush(self) -> list[bytes]:
        """End the text; return the bytes of a character that was never completed."""
        return self.feed(b"", last=True)


class SseEvent(msgspec.Struct, frozen=True):
    """One dispatched event; `data` as bytes (lines joined by LF), `event` "" when unnamed."""

    data: bytes
    event: str = ""


def events(stream: bytes) -> list[SseEvent]:
    """Return the events of a block, or of a whole stream; one that is not ended is none.

    Ids and retries are what clients reconnect with: nothing here does.
    """
    text = stream.removeprefix(_BOM).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    found: list[SseEvent] = []
    data: list[bytes] = []
    name = ""
    for line in text.split(b"\n")[:-1]:
        field_name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if data:
                found.append(SseEvent(b"\n".join(data), name))
            data, name = [], ""
        elif field_name == b"data":
            data.append(value)
        elif field_name == b"event":
            name = value.decode("utf-8", "replace")
    return found


def comment(text: str) -> bytes:
    """Encode a comment block; `text` is one line."""
    return f": {text}\n\n".encode()


def payload(line: bytes) -> bytes:
    """Return a line without its end, white space and byte order mark; b"" is a keep-alive."""
    return line.removeprefix(_BOM).strip(_SPACE)
