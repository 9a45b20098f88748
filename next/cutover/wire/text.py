"""Plain text that comes as it is written, sans I/O: pieces that tear no character."""

from __future__ import annotations

import codecs


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
