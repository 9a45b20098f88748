"""Connections: uvicorn's, which an application may drop and write to, and which have limits.

The parser has no limits of its own: a head without end, or thousands of requests sent before the
first is answered, would be kept for as long as the memory lasts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from httptools import HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from contract.errors import CutoverError
from cutover.server.corking import Corked
from router.http.disconnect import ABORT, LEAVING, PASSING

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_HEAD: Final = 65_536
"""Bytes of a request's first line and headers, and of anything else that is not its body."""
MOST_HEADERS: Final = 256
MOST_WAITING: Final = 16
"""Requests a client may send before those before them are answered."""
HEAD_SECONDS: Final = 75.0
"""What a client gets to send a head, the first one or the next that it has begun."""

_TOO_LARGE: Final = 431
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})


class _TooMuch(CutoverError):
    """A client sends more than a request is made of."""

    def __init__(self) -> None:
        super().__init__("a client sends more than a request is made of")


class _Unsaid(int):
    """The length of a body that ends with its connection: never too short, never too long."""

    def __lt__(self, _: int) -> bool:
        return False

    def __ne__(self, _: object) -> bool:
        return False

    def __sub__(self, _: int) -> _Unsaid:
        return self


class _Parser(HttpRequestParser):
    """Reads requests to their end, also those that would go on in another protocol.

    The JDK's client wishes for HTTP/2 with every request, bodies included. Nobody has to grant that
    (RFC 9110, 7.8), but httptools takes the wish for the change and leaves what follows the head.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._begin()

    def _begin(self) -> None:
        super().__init__(self._connection)
        # As uvicorn does: a pipelined request may follow one after which the connection is closed.
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed_data(self, data: bytes) -> None:  # type: ignore[override] # no other kind comes
        """Take what has come."""
        while data:
            try:
                super().feed_data(data)
            except HttpParserUpgrade as wish:
                data = self._connection.framing + data[wish.args[0] :]
                self._begin()  # of what closes the connection it would read no more
            else:
                return


class Connection(HttpToolsProtocol):
    """uvicorn only closes connections: that waits until the client has taken all that was sent."""

    framing = b""
    """A head that says where the body ends that the parser has left; empty where there is none."""
    _beside = 0
    """Bytes since the last that belonged to a body, or ended a request."""
    _too_large = False
    _lost = False
    _heading = True
    """Whether a head is due, or has begun and not ended."""
    _silent: asyncio.TimerHandle | None = None
    _told: Callable[[], None] | None = None
    transport: Corked

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.parser = _Parser(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn declares it
        """Keep the connection; what is said in one turn of the loop leaves together."""
        super().connection_made(Corked(transport))
        self._extensions: dict[str, dict[object, object]] = {
            ABORT: {"call": self.transport.abort},
            PASSING: {"call": self.pass_on},
            LEAVING: {"call": self.tell_of_leaving},
        }
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who wants to know."""
        super().connection_lost(exc)
        self._lost = True
        self._heard()
        told, self._told = self._told, None
        if told is not None:
            told()

    def tell_of_leaving(self, told: Callable[[], None] | None) -> None:
        """Have somebody told when the client leaves, or nobody any more."""
        self._told = told
        if told is not None and self._lost:
            told()

    def on_message_begin(self) -> None:
        """Begin a request; its scope says how to drop the connection."""
        super().on_message_begin()
        self.scope["extensions"] = self._extensions
        self._heading = True

    def pass_on(self, body: bytes) -> bool:
        """Send a piece of the response's body; False where it cannot be sent now, and by whom.

        That is where the client is behind, or where it has sent its next request already.
        """
        cycle = self.cycle
        if cycle.response_complete or cycle.disconnected or self.flow.write_paused:
            return False
        if not cycle.chunked_encoding:
            return False  # its head has not gone out
        self.transport.write_now(b"%x\r\n%b\r\n" % (len(body), body))
        return True

    def data_received(self, data: bytes) -> None:
        """Parse what has come; refuse what does not get on."""
        self._beside += len(data)
        super().data_received(data)
        if self._beside > MOST_HEAD and not self.transport.is_closing():
            self._too_large = True
            self.send_400_response("Too large.")
        if self._silent is None and not self.transport.is_closing():
            cycle: Any = self.cycle  # None before the first request, whose head is due
            # Answered, it may send empty lines, or what nobody reads of its body.
            if self._heading or cycle.response_complete:
                self._watch()

    def _watch(self) -> None:
        """Drop a client that sends something and no whole head: uvicorn keeps it for ever."""
        self._silent = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _give_up(self) -> None:
        cycle: Any = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            self._watch()  # it is being answered, and has time for its next head until then
        else:
            self.transport.close()  # once it has taken all that was sent

    def _heard(self) -> None:
        self._heading = False
        if self._silent is not None:
            self._silent.cancel()
            self._silent = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or one behind the body."""
        if len(self.headers) >= MOST_HEADERS:
            self._too_large = True
            raise _TooMuch
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to serve, or wait until the requests before have been."""
        self._heard()
        if self.framing:
            self.framing = b""
            return
        super().on_headers_complete()
        if self.parser.should_upgrade():
            self.framing = _framing(self.headers)
        if self.scope["http_version"] == "1.0":
            # It knows no chunks (RFC 9112, 6.1): it would take their sizes for what was said.
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = _Unsaid()
        if len(self.pipeline) > MOST_WAITING:
            self.transport.abort()
            raise _TooMuch

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body: how large that may be is the application's to say."""
        self._beside = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._beside = 0
        if not self.framing:
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
    """Write a head that says how long its body is, as these headers do; empty if they do not."""
    lines = [b"%b: %b\r\n" % header for header in headers if header[0] in _FRAMING]
    return b"".join([b"POST / HTTP/1.1\r\n", *lines, b"\r\n"]) if lines else b""
