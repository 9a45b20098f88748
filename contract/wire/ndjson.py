"""Lines of JSON, sans I/O: a decoder with `feed` and `flush`.

A line ends at LF; a CR before it belongs to the line end. Lines of white space are keep-alives. One
byte order mark at the start is skipped. Bytes that are no UTF-8 stay as they are: decoding the line
reports them. Working on bytes is safe because no byte of a multi-byte sequence equals LF.
"""

from __future__ import annotations

from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"
# White space of JSON (RFC 8259); bytes.strip() would take form feeds, too.
_SPACE = b" \t\r\n"


@dataclass(slots=True, eq=False)
class NdjsonDecoder:
    """Turns bytes, cut anywhere, into lines without their ends."""

    keepalives: int = 0
    _start: bool = True
    _tail: bytes = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next bytes; return the lines they complete."""
        if b"\n" not in piece:
            self._tail += piece
            return []
        *lines, self._tail = (self._tail + piece).split(b"\n")
        return self._filled(lines)

    def flush(self) -> list[bytes]:
        """End the stream: a last line without its end counts.

        Many writers leave the last line end out, and an object that was cut short is no JSON: a
        torn line is passed on and shows itself.
        """
        lines = self._filled([self._tail]) if self._tail else []
        self._tail = b""
        return lines

    def _filled(self, lines: list[bytes]) -> list[bytes]:
        if self._start:
            lines[0] = lines[0].removeprefix(_BOM)
            self._start = False
        filled = [line.removesuffix(b"\r") for line in lines if line.strip(_SPACE)]
        self.keepalives += len(lines) - len(filled)
        return filled
