"""HTTP connections: uvicorn's, with limits, and with what an application may do to them.

The parser has no limits of its own: a head without end, or thousands of requests sent before the
first is answered, would be kept for as long as the memory lasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from httptools import HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from contract.errors import CutoverError
from router.http.connection import ABORT, ON_DISCONNECT, WRITE_NOW

MOST_HEAD: Final = 65_536
"""Bytes of a request's first line and headers, and of anything else outside its body."""
MOST_HEADERS: Final = 256
MOST_WAITING: Final = 16
"""Pipelined requests a client may send before the first is answered."""
HEAD_SECONDS: Final = 75.0
"""What a client gets to send a whole head, the first or the next one."""
LINGER_SECONDS: Final = 5.0
"""How long a client is read on that is answered before it has sent its request."""
AT_ONCE: Final = 16_384
"""Bytes from which a write is not delayed: flow control is to notice a slow client in time."""

_TOO_LARGE: Final = 431
_LINE_ENDS: Final = 4
"""Bytes of a header that are neither name nor value: `: ` and the end of its line."""
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})


class CorkedTransport(asyncio.Transport):
    """A transport that joins what is written in one turn of the loop.

    The head of a response and its first event leave in one packet, by one system call. Where
    `linger` returns True, closing it ends what is written alone, until it is closed again.
    """

    def __init__(
        self, transport: asyncio.Transport, linger: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__()
        self._transport = transport
        self._linger = linger
        self._held: list[bytes] = []
        self._size = 0
        # Bound directly: some are called for every event.
        self.is_closing: Callable[[], bool] = transport.is_closing
        self.get_extra_info: Callable[..., Any] = transport.get_extra_info
        self.pause_reading: Callable[[], None] = transport.pause_reading
        self.resume_reading: Callable[[], None] = transport.resume_reading
        self._soon = asyncio.get_running_loop().call_soon

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write together with everything else written in this turn."""
        if not self._held:
            self._soon(self.flush)
        self._held.append(bytes(data))
        self._size += len(data)
        if self._size >= AT_ONCE:
            self.flush()

    def write_now(self, data: bytes) -> None:
        """Write without waiting for more."""
        if self._held:
            self._held.append(data)
            self.flush()
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Write what is held."""
        if self._held:
            held, self._held, self._size = self._held, [], 0
            self._transport.write(b"".join(held))

    def close(self) -> None:
        """Close the connection once everything is sent."""
        self.flush()
        if not self.is_closing() and self._linger():
            self._transport.write_eof()
            self.is_closing = lambda: True
        else:
            self._transport.close()

    def abort(self) -> None:
        """Drop the connection and what is not sent yet."""
        self._held.clear()
        self._transport.abort()

    def release(self) -> None:
        """Forget the connection, which is lost."""
        self._linger = lambda: False


class _TooMuch(CutoverError):
    """A client sends more than a request consists of."""

    def __init__(self) -> None:
        super().__init__("a client sends more than a request consists of")


class _HostUnclear(CutoverError):
    """A request has no host, or several (RFC 9112, 3.2)."""

    def __init__(self) -> None:
        super().__init__("a request has no host, or several")


class _UnknownLength(int):
    """The length of a body that ends with its connection: never exceeded, never missed."""

    def __lt__(self, _: int) -> bool:
        return False

    def __ne__(self, _: object) -> bool:
        return False

    def __sub__(self, _: int) -> _UnknownLength:
        return self


class _Parser(HttpRequestParser):
    """Reads requests to their end, also those that ask for another protocol.

    The JDK's client asks for HTTP/2 with every request, bodies included. A server may ignore that
    (RFC 9110, 7.8), but httptools takes the request for the change and stops after the head.
    """

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._restart()

    def _restart(self) -> None:
        super().__init__(self._connection)
        # As uvicorn does: a pipelined request may follow one after which the connection is closed.
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed_data(self, data: bytes) -> None:  # type: ignore[override] # only bytes come
        """Parse received bytes."""
        while data:
            try:
                super().feed_data(data)
            except HttpParserUpgrade as upgrade:
                data = self._connection.framing + data[upgrade.args[0] :]
                self._restart()  # after a request that closes the connection it would stop
            else:
                return


class ServerConnection(HttpToolsProtocol):
    """uvicorn's connection; a scope offers to drop it, write at once and notice a disconnect."""

    framing = b""
    """A head that frames the body the parser has not read after an upgrade; empty otherwise."""
    _beside = 0
    """Bytes since the last that belonged to a body, or ended a request."""
    _head = 0
    """Bytes of the head that is read: its address and its headers."""
    _too_large = False
    _lost = False
    _in_head = True
    """Whether a head is due, or has begun and not ended."""
    _receiving = False
    """Whether a request has begun, and has not been read to its end."""
    _lingering: asyncio.TimerHandle | None = None
    _head_timer: asyncio.TimerHandle | None = None
    _on_disconnect: Callable[[], None] | None = None
    transport: CorkedTransport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn declares it
        """Cork the transport, and wait for the first head."""
        super().connection_made(CorkedTransport(transport, self._linger))
        self.parser = _Parser(self)
        self._extensions: dict[str, dict[object, object]] = {
            ABORT: {"call": self.transport.abort},
            WRITE_NOW: {"call": self.write_body_now},
            ON_DISCONNECT: {"call": self.on_disconnect},
        }
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_timed_out)

    def connection_lost(self, exc: Exception | None) -> None:
        """Call back the application, if it asked for that; drop what would form a cycle."""
        super().connection_lost(exc)
        self._lost = True
        if self._lingering is not None:
            self._lingering.cancel()
        self._head_ended()
        self._unset_keepalive_if_required()
        # What refers to this in turn would keep it until a collection of the oldest generation,
        # and these are thousands of requests apart.
        self.transport.release()
        self.pipeline.clear()
        self._extensions = {}
        self.cycle = self.scope = None  # type: ignore[assignment] # as before the first request
        callback, self._on_disconnect = self._on_disconnect, None
        if callback is not None:
            callback()

    def on_disconnect(self, callback: Callable[[], None] | None) -> None:
        """Call back when the client disconnects; None cancels that."""
        self._on_disconnect = callback
        if callback is not None and self._lost:
            callback()

    def on_message_begin(self) -> None:
        """Begin a request; its scope carries the extensions."""
        super().on_message_begin()
        self._receiving = True
        self.scope["extensions"] = self._extensions
        self._in_head = True
        self._head = 0

    def on_url(self, url: bytes) -> None:
        """Take a piece of the address."""
        self._grow(len(url))
        super().on_url(url)

    def write_body_now(self, body: bytes) -> bool:
        """Send a piece of the response's body; False where it cannot be sent at once.

        That is where the client is behind, or has sent its next request already.
        """
        cycle = self.cycle
        if self._lost or cycle.response_complete or cycle.disconnected or self.flow.write_paused:
            return False
        if not cycle.chunked_encoding:
            return False  # its head has not gone out
        self.transport.write_now(b"%x\r\n%b\r\n" % (len(body), body))
        return True

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; refuse what makes no progress."""
        if self._lingering is not None:
            return
        self._beside += len(data)
        super().data_received(data)
        if self._beside > MOST_HEAD and not self.transport.is_closing():
            self._too_large = True
            self.send_400_response("Too large.")
        if self._head_timer is None and not self.transport.is_closing():
            cycle: Any = self.cycle  # None before the first request
            # After its response a client may send empty lines, or a body that is not read.
            if self._in_head or cycle.response_complete:
                self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_timed_out)

    def _head_timed_out(self) -> None:
        """Drop a client that sends bytes but no whole head: uvicorn keeps it for ever."""
        cycle: Any = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            # It is being answered: its next head is not due yet.
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_timed_out)
        else:
            self._receiving = False
            self.transport.close()  # once everything is sent

    def _linger(self) -> bool:
        """Read on where a request is not whole; returns whether that is so.

        To close a connection with unread bytes resets it: the client may lose its answer.
        """
        if not self._receiving:
            return False
        self._lingering = self.loop.call_later(LINGER_SECONDS, self.transport.close)
        self.flow.resume_reading()
        return True

    def _head_ended(self) -> None:
        self._in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer."""
        self._grow(len(name) + len(value) + _LINE_ENDS)
        if len(self.headers) >= MOST_HEADERS:
            self._too_large = True
            raise _TooMuch
        super().on_header(name, value)

    def _grow(self, size: int) -> None:
        # By itself: a head that comes in one piece with its end would not be beside anything.
        self._head += size
        if self._head > MOST_HEAD:
            self._too_large = True
            raise _TooMuch

    def on_headers_complete(self) -> None:
        """Begin to serve, or wait until the requests before it are served."""
        self._head_ended()
        if self.framing:
            self.framing = b""
            return
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            raise _HostUnclear
        super().on_headers_complete()
        if self.parser.should_upgrade():
            self.framing = _framing(self.headers)
        if self.scope["http_version"] == "1.0":
            # HTTP/1.0 knows no chunks (RFC 9112, 6.1): their sizes would be read as text.
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = _UnknownLength()
        if len(self.pipeline) > MOST_WAITING:
            self.transport.abort()
            raise _TooMuch

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body; the application limits its size."""
        self._beside = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._beside = 0
        if not self.framing:
            self._receiving = False
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, or too large for one."""
        if not self._too_large:
            super().send_400_response(msg)
            return
        head = STATUS_LINE[_TOO_LARGE] + b"content-length: 0\r\nconnection: close\r\n\r\n"
        self.transport.write(head)
        self.transport.close()


def _framing(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return a head with the headers that frame a body; empty if there are none."""
    lines = [b"%b: %b\r\n" % header for header in headers if header[0] in _FRAMING]
    return b"".join([b"POST / HTTP/1.1\r\n", *lines, b"\r\n"]) if lines else b""
