"""Lines of JSON and plain text, sans I/O: splitters into raw lines, and into whole characters."""

from __future__ import annotations

import codecs

from cutover.wire.sse import Splitter

_BOM = b"\xef\xbb\xbf"
# White space of JSON (RFC 8259); bytes.strip() would take form feeds, too.
_SPACE = b" \t\r\n"


class LineSplitter(Splitter):
    """Splits into lines up to and with their LF.

    A CR alone ends no line: to JSON it is white space.
    """

    def _end(self, start: int) -> int | None:
        return self._buffer.find(b"\n", max(start, self._seen)) + 1 or None


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
