"""Reading one HTTP response, sans I/O: bytes and stamps go in, a `StreamMeter` is told.

A C parser, because what the generator spends on one event delays the stamp of the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httptools

if TYPE_CHECKING:
    from loadtests.measuring import How, StreamMeter

LABEL_PREFIX = b"x-cutover-"
FIRST_FINAL_STATUS = 200


class ResponseReader:
    """Feeds a meter; `done` once the response has ended as its own headers say."""

    __slots__ = ("_at", "_framed", "_labels", "_meter", "_parser", "_started", "broken", "done")

    def __init__(self, meter: StreamMeter) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._meter = meter
        self._labels: dict[str, str] = {}
        self._framed = False
        self._started = False
        self._at = 0
        self.done = False
        self.broken = False

    def feed(self, piece: bytes, at: int) -> None:
        """Take bytes as they arrived at `at` (monotonic nanoseconds)."""
        self._at = at
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserError:
            self.broken = True

    def ended(self) -> How:
        """Say how a response ended whose connection is closed now."""
        if self.done or (self._started and not self._framed and not self.broken):
            return "done"
        return "cut"

    def on_header(self, name: bytes, value: bytes) -> None:
        """Parser: one header."""
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._framed = True
        elif name.startswith(LABEL_PREFIX):
            self._labels[name.removeprefix(LABEL_PREFIX).decode("latin-1")] = value.decode(
                "latin-1"
            )

    def on_headers_complete(self) -> None:
        """Parser: the headers are over; an interim answer (1xx) is passed over."""
        status = self._parser.get_status_code()
        if status >= FIRST_FINAL_STATUS:
            self._started = True
            self._meter.started(status, self._labels, self._at)

    def on_body(self, body: bytes) -> None:
        """Parser: some of the body."""
        self._meter.body(body, self._at)

    def on_message_complete(self) -> None:
        """Parser: the response is over."""
        self.done = self._started
