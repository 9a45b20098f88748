"""Reading streams on raw connections: a client so cheap that it measures others, not itself."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

from contract.errors import CutoverError

END = b'{"step":"END"}'
_NOT_CONNECTED = "not connected"
_OK = b"HTTP/1.1 200"
_LAST = b"\r\n0\r\n\r\n"
_STAMP = b'SEND","content":"'
_STAMP_DIGITS = 19
_DIGITS = bytes.maketrans(b"abcdefghij", b"0123456789")
_MOST_CUT = 120
_MILLION = 1_000_000


class StreamBroken(CutoverError):
    """A stream did not come to its end: the figures would be worthless."""

    def __init__(self, why: str) -> None:
        super().__init__(f"a measured stream broke: {why}")


@dataclass(slots=True)
class Seen:
    """One stream as its reader saw it: seconds to the first frame, event delays in milliseconds."""

    first: float = 0.0
    delays: list[float] = field(default_factory=list)


class Reader(asyncio.Protocol):
    """Sends requests on one connection, one after the other."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[Seen] | None = None
        self._seen = Seen()
        self._sent = 0.0
        self._tail = b""
        self.stamped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        # uvloop's is one by its methods only.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the pending request."""
        self._fail(str(error or "closed before its end"))

    def ask(self, request: bytes) -> asyncio.Future[Seen]:
        """Send a request; the future has what was seen of its stream, at its end."""
        self._done = asyncio.get_running_loop().create_future()
        self._seen, self._tail = Seen(), b""
        self._sent = time.monotonic()
        if self._transport is None:
            raise StreamBroken(_NOT_CONNECTED)
        self._transport.write(request)
        return self._done

    def data_received(self, data: bytes) -> None:
        """Read a piece of a stream."""
        now = time.monotonic_ns()
        data = self._tail + data
        if not self._seen.first:
            if not data.startswith(_OK[: len(data)]):
                self._fail(data[:200].decode("utf-8", "replace"))
                return
            if b"data: " not in data:
                self._tail = data
                return
            self._seen.first = now / 1_000_000_000 - self._sent
        read = self._stamps(data, now) if self.stamped else 0
        if data.endswith(_LAST):
            self._end(data)
            return
        # What may be cut at the end of a piece: a stamp, the terminal frame.
        self._tail = data[max(read, len(data) - _MOST_CUT) :]

    def _stamps(self, data: bytes, now: int) -> int:
        """Record the delays of the events in a piece; return the offset behind the last one."""
        read = 0
        at = data.find(_STAMP)
        while 0 <= at <= len(data) - len(_STAMP) - _STAMP_DIGITS:
            read = at + len(_STAMP) + _STAMP_DIGITS
            sent = int(data[read - _STAMP_DIGITS : read].translate(_DIGITS))
            self._seen.delays.append((now - sent) / _MILLION)
            at = data.find(_STAMP, read)
        return read

    def _end(self, data: bytes) -> None:
        if self._done is None or self._done.done():
            return
        if END in data:
            self._done.set_result(self._seen)
        else:
            self._fail("no terminal event")

    def _fail(self, why: str) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(StreamBroken(why))

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()


def request(url: str, query: str = "", number: int = 0) -> bytes:
    """Write a chat request for a server."""
    body = b'{"message_id":"bench-%d","content":"Tell me about clouds."}' % number
    path = "/chat/sse" + (f"?{query}" if query else "")
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {urlsplit(url).netloc}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def connect(url: str) -> Reader:
    """Open a connection to a server."""
    parts = urlsplit(url)
    _, reader = await asyncio.get_running_loop().create_connection(
        Reader, parts.hostname or "", parts.port or 0
    )
    return reader
