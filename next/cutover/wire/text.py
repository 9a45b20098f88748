"""Plain text that comes as it is written, sans I/O: pieces that tear no character."""

from __future__ import annotations

from dataclasses import dataclass

# The first byte of a character of two, three and four bytes, by how many more belong to it.
_LEADS = ((0xC0, 0xE0, 1), (0xE0, 0xF0, 2), (0xF0, 0xF8, 3))
_CONTINUES = range(0x80, 0xC0)


@dataclass(slots=True, eq=False)
class TextSplitter:
    """Turns bytes, cut anywhere, into pieces of whole characters; bytes that are none pass, too.

    The pieces follow the input's cuts, since plain text has no frames.
    """

    _tail: bytes = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next bytes; return what is whole of them, in one piece."""
        data = self._tail + piece
        end = len(data) - _torn(data)
        self._tail = data[end:]
        return [data[:end]] if end else []

    def flush(self) -> list[bytes]:
        """End the text; return the bytes of a character that was never completed."""
        rest, self._tail = self._tail, b""
        return [rest] if rest else []


def _torn(data: bytes) -> int:
    """Count the bytes at the end that begin a character which is not whole yet, at most 3."""
    for back, byte in enumerate(data[: -len(_LEADS) - 1 : -1]):
        if byte in _CONTINUES:
            continue
        due = next((more for low, high, more in _LEADS if low <= byte < high), 0)
        return back + 1 if due > back else 0
    return 0
