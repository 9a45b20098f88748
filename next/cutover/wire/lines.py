"""Lines of JSON and plain text, sans I/O: splitters into raw lines, and into whole characters."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field

from cutover.wire.sse import MOST_BLOCK_BYTES, BlockTooLong

_BOM = b"\xef\xbb\xbf"
# White space of JSON (RFC 8259); bytes.strip() would take form feeds, too.
_SPACE = b" \t\r\n"


@dataclass(slots=True, eq=False)
class LineSplitter:
    """Turns bytes, cut anywhere, into lines up to and with their LF; together they are the input.

    A CR alone ends no line: to JSON it is white space.
    """

    limit: int = MOST_BLOCK_BYTES
    # Pieces, joined once: a line of megabytes would otherwise be copied with every piece.
    _tail: list[bytes] = field(default_factory=list)
    _held: int = 0
    _over: bool = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next bytes; return the lines they complete.

        Raises `BlockTooLong`, once the lines before the long one have been returned.
        """
        lines: list[bytes] = []
        if b"\n" in piece:
            *ended, piece = b"".join((*self._tail, piece)).split(b"\n")
            self._tail, self._held = [], 0
            for line in ended:
                self._over = self._over or len(line) >= self.limit
                if not self._over:
                    lines.append(line + b"\n")
        self._tail.append(piece)
        self._held += len(piece)
        self._over = self._over or self._held > self.limit
        if self._over and not lines:
            raise BlockTooLong(self.limit)
        return lines

    def flush(self) -> list[bytes]:
        """End the stream; return the last line where it lacks its end, as many writers leave it."""
        if self._over:
            raise BlockTooLong(self.limit)
        rest = b"".join(self._tail)
        self._tail, self._held = [], 0
        return [rest] if rest else []


def payload(line: bytes) -> bytes:
    """Return a line without its end, white space and byte order mark; b"" is a keep-alive."""
    return line.removeprefix(_BOM).strip(_SPACE)


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
