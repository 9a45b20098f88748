"""Parsing an answer over HTTP/1.1, sans I/O: bytes cut anywhere in, its body out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_BESIDE = 65_536
"""Bytes in a row that are no body: heads, trailers, chunk extensions."""

_LEAST = 100
_FINAL = 200
_CODINGS = frozenset({b"chunked", b"identity"})


class AnswerParser:
    """Reads one answer; the informational ones before it (RFC 9110, 15.2) are passed over.

    `headed`: `status` and `headers` are there; `complete`: the body has ended as it should;
    `fault`: what is wrong with it; `reusable`: the connection may be used again.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.headed = self.complete = self.reusable = False
        self.fault = ""
        self._beside = 0
        self._delimited = False
        self._own: int | None = None
        self._pieces: list[bytes] = []
        # Called for each chunk, without a function of ours in between.
        self.on_body: Callable[[bytes], None] = self._pieces.append
        self._parser: HttpResponseParser | None = HttpResponseParser(self)

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; return what they hold of the body."""
        if self._parser is None:
            self.reusable = False  # bytes without a request
            return b""
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._break(type(error).__name__)
        body = self._body()
        if self.complete:
            self._parser = None  # breaks the reference cycle
        self._beside = 0 if body else self._beside + len(data)
        if self._beside > MOST_BESIDE:
            self._break("too much that is no body")
        return body

    def end(self) -> None:
        """Take the end of the connection: it ends some bodies and cuts off others."""
        if self.headed and not self._delimited and not self.fault:
            self.complete = True
        elif not self.complete:
            self._break("the connection ended")
        self.reusable = False
        self._parser = None

    def _break(self, why: str) -> None:
        if not self.complete:
            self.fault = self.fault or why
            self._own = len(self._pieces)
        self.reusable = False
        self._parser = None

    def _body(self) -> bytes:
        pieces = self._pieces
        if not pieces:
            return b""
        if self._own is not None:
            del pieces[self._own :]  # what follows the end, or the fault, is no body
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return body

    def on_message_begin(self) -> None:
        """Begin an answer; after a second one the connection is not reused."""
        if self.complete:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers are ignored."""
        if not self.headed:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Take the end of a head."""
        if self._parser is None or self.headed:
            return
        self.status = self._parser.get_status_code()
        if self.status < _LEAST:
            self._break("no status of an answer")
            return
        if self.status < _FINAL:
            self.headers.clear()
            return
        if any(map(_codes, self.headers)):
            self._break("an unsolicited transfer coding")
            return
        self.headed = True
        self.reusable = self._parser.should_keep_alive()
        self._delimited = any(map(_delimits, self.headers))

    def on_message_complete(self) -> None:
        """Take the end of an answer."""
        if self.headed and not self.complete:
            self.complete = True
            self._own = len(self._pieces)


def _codes(header: tuple[bytes, bytes]) -> bool:
    """Whether a header names a transfer coding that was not requested."""
    name, value = header
    return name == b"transfer-encoding" and value.strip().lower() not in _CODINGS


def _delimits(header: tuple[bytes, bytes]) -> bool:
    name, value = header
    if name == b"transfer-encoding":
        return value.strip().lower() == b"chunked"
    return name == b"content-length"
