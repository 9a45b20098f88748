"""The HTTP/1.1 client of remote stacks: the hot path of a passed-through stream.

`ResponseParser` reads a response, sans I/O; `Connection` carries one request at a time, and
`Response` is what arrives for it; `Client` connects to one host, and reuses idle connections.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from yarl import URL

from contract.errors import CutoverError
from effects.loop_time import limit
from effects.tape import Signal
from router.remote.body import StreamedResponse, ignore_body

MOST_BESIDE_BODY = 65_536
"""Bytes in a row that are no body: heads, trailers, chunk extensions."""
DRAIN_SECONDS = 1.0
"""How long a response may take to end after its last frame; then its connection is dropped."""
KEEP_ALIVE_SECONDS = 3.0
"""How long an idle connection is reused: common servers close it after five seconds. A request that
meets the close fails: it may have been handled, and is not sent twice."""

_FIRST_STATUS = 100
_FIRST_FINAL_STATUS = 200
_CODINGS = frozenset({b"chunked", b"identity"})


class ResponseLost(CutoverError):
    """A response broke off, or is not HTTP."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the response is lost: {why}")


class ConnectTimedOut(CutoverError):
    """A stack was not connected to in time."""

    def __init__(self, place: str, seconds: float) -> None:
        super().__init__(f"no connection to {place!r} within {seconds:g} s")


class Unreachable(CutoverError):
    """No server accepts connections at an address."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"cannot connect to {place!r}: {why}")


class ResponseParser:
    """Reads one response; the informational ones before it (RFC 9110, 15.2) are passed over.

    `headed`: `status` and `headers` are there; `complete`: the body has ended as it should;
    `fault`: what is wrong with it; `reusable`: the connection may be used again.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.headed = self.complete = self.reusable = False
        self.fault = ""
        self._beside_body = 0
        self._delimited = False
        self._body_end: int | None = None
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
        self._beside_body = 0 if body else self._beside_body + len(data)
        if self._beside_body > MOST_BESIDE_BODY:
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
            self._body_end = len(self._pieces)
        self.reusable = False
        self._parser = None

    def _body(self) -> bytes:
        pieces = self._pieces
        if not pieces:
            return b""
        if self._body_end is not None:
            del pieces[self._body_end :]  # what follows the end, or the fault, is no body
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return body

    def on_message_begin(self) -> None:
        """Begin a response; after a second one the connection is not reused."""
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
        if self.status < _FIRST_STATUS:
            self._break("no status of a response")
            return
        if self.status < _FIRST_FINAL_STATUS:
            self.headers.clear()
            return
        codings = [v.strip().lower() for k, v in self.headers if k == b"transfer-encoding"]
        if not _CODINGS.issuperset(codings):
            self._break("an unrequested transfer coding")
            return
        self.headed = True
        self.reusable = self._parser.should_keep_alive()
        self._delimited = b"chunked" in codings or any(
            name == b"content-length" for name, _ in self.headers
        )

    def on_message_complete(self) -> None:
        """Take the end of a response."""
        if self.headed and not self.complete:
            self.complete = True
            self._body_end = len(self._pieces)


class Response(StreamedResponse):
    """The response to one request over a connection."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self._parser = ResponseParser()
        self._draining: asyncio.TimerHandle | None = None

    @property
    def status(self) -> int:
        """Status of the response; 0 before its head has arrived."""
        return self._parser.status

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of the response, names in lower case."""
        return self._parser.headers

    async def headed(self) -> None:
        """Wait for the head; raises `ResponseLost`. Cancelled, it drops the connection."""
        try:
            while not self._parser.headed:
                self.check()
                await self.changed.wait()
        except BaseException:
            self.close()
            raise

    def pause(self) -> None:
        """Pause reading."""
        if not self.ended:
            self._connection.pause()

    def resume(self) -> None:
        """Resume reading."""
        if not self.ended:
            self._connection.resume()

    def close(self) -> None:
        """Release the response; where it has not ended, drop its connection."""
        self._listener = ignore_body
        if not self.ended:
            self._finish()
            self._connection.drop()

    def drain(self) -> None:
        """Let it end within `DRAIN_SECONDS`, so that its connection can be used again."""
        self._listener = ignore_body
        if not self.ended:
            self._connection.resume()
            self._draining = asyncio.get_running_loop().call_later(DRAIN_SECONDS, self.close)

    def feed(self, data: bytes) -> bool:
        """Take bytes; return whether the connection is free for another request."""
        parser = self._parser
        body = parser.feed(data)
        if body and self._listener is not None:
            self._pass_on(self._listener, body)
        elif body:
            self._held += body
            self.changed.wake()
        elif parser.headed:
            self.changed.wake()
        if parser.complete or parser.fault:
            self._check_end()
        return parser.reusable and parser.complete and self._error is None

    def end(self, why: str) -> None:
        """Take the end of the connection."""
        if not self.ended:
            self._parser.end()
            self._check_end(why)

    def _check_end(self, why: str = "") -> None:
        if self._parser.fault and self._error is None:
            self._error = ResponseLost(why or self._parser.fault)
        self._finish()

    def _finish(self) -> None:
        self.ended = True
        if self._draining is not None:
            self._draining.cancel()
        self.changed.wake()


class Connection(asyncio.Protocol):
    """Sends requests, and passes arriving bytes on to the response.

    `free` is called when it can take another request, `lost` when it has ended.
    """

    def __init__(
        self, free: Callable[[Connection], None], lost: Callable[[Connection], None]
    ) -> None:
        self._free = free
        self._lost = lost
        self._response: Response | None = None
        self._transport: asyncio.Transport | None = None
        self._paused = False

    @property
    def closing(self) -> bool:
        """Whether it can take no more requests."""
        return self._transport is None or self._transport.is_closing()

    def send(self, request: bytes) -> Response:
        """Send a request; return its response, still empty."""
        response = self._response = Response(self)
        if self._transport is None or self.closing:
            response.end("the connection was closed")
        else:
            self._transport.write(request)
        return response

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        # uvloop's is one by its methods only.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on to the open response."""
        response = self._response
        if response is None:
            self.drop()  # bytes without a request
        elif response.feed(data) and self._sent:
            self._response = None
            self.resume()
            self._free(self)
        elif response.ended:
            self.drop()

    def connection_lost(self, error: Exception | None) -> None:
        """End the response, and report the loss to the client."""
        self._transport = None
        if self._response is not None:
            self._response.end(type(error).__name__ if error else "")
            self._response = None
        self._lost(self)

    @property
    def _sent(self) -> bool:
        """Whether the whole request is sent: an early response may leave the rest unread."""
        return self._transport is not None and not self._transport.get_write_buffer_size()

    def pause(self) -> None:
        """Pause reading."""
        if self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Resume reading."""
        if self._transport is not None and self._paused:
            self._paused = False
            self._transport.resume_reading()

    def drop(self) -> None:
        """Abort it: the stack notices as it would without a router."""
        if self._transport is not None:
            self._transport.abort()


class Client:
    """The connections to the host of a URL: one per open request, the last used first."""

    def __init__(self, url: URL, connect_seconds: float) -> None:
        self._url = url
        self._seconds = connect_seconds
        self._secured = ssl.create_default_context() if url.scheme == "https" else None
        self._open: set[Connection] = set()
        self._idle: dict[Connection, asyncio.TimerHandle] = {}
        self._lost = Signal()

    @property
    def connections(self) -> int:
        """How many are open, in use or not."""
        return len(self._open)

    async def request(self, request: bytes) -> Response:
        """Send a request; return when the head of its response has arrived.

        Raises:
            ConnectTimedOut: there was no connection in time.
            Unreachable: the connection was refused, or the host is unknown.
            ResponseLost: the connection broke before the head was whole.
        """
        connection = self._reusable() or await self._connect()
        response = connection.send(request)
        await response.headed()
        return response

    async def aclose(self) -> None:
        """Abort all connections."""
        for connection in self._open:
            connection.drop()
        while self._open:
            await self._lost.wait()

    def _reusable(self) -> Connection | None:
        """Return the connection used last that is neither too old nor dropped."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection, timer = self._idle.popitem()
            timer.cancel()
            if timer.when() > now and not connection.closing:
                return connection
            connection.drop()
        return None

    async def _connect(self) -> Connection:
        url = self._url
        try:
            async with limit(self._seconds):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self._free, self._forget),
                    url.raw_host or "",
                    url.port or 0,
                    ssl=self._secured,
                )
        except TimeoutError as error:
            raise ConnectTimedOut(url.authority, self._seconds) from error
        except OSError as error:
            raise Unreachable(url.authority, type(error).__name__) from error
        self._open.add(connection)
        return connection

    def _free(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        self._idle[connection] = loop.call_later(KEEP_ALIVE_SECONDS, connection.drop)

    def _forget(self, connection: Connection) -> None:
        if (timer := self._idle.pop(connection, None)) is not None:
            timer.cancel()
        self._open.discard(connection)
        self._lost.wake()
