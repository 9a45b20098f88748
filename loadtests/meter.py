"""Metering one streamed response: stamps go in as they are taken, a `LoadRow` comes out.

A content event is one by which the answer or the reasoning grew; an empty role chunk, a repeated
cumulative text or a keep-alive is none. TTFT is the first moment a reader sees words, so the empty
first chunk some clients count is not counted. Below, reading a response over a blocking socket.
"""

from __future__ import annotations

import errno
import socket
import ssl
import time
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Literal, assert_never

import httptools
import msgspec

from contract.flow import FlowSpec
from contract.wire import NO_JSON, Dialect, WireEvent, WireReader, value_at
from loadtests.requests import Target
from loadtests.rows import SECOND, STALL_SECONDS, Ending, LoadRow

REFUSAL_BYTES = 4_096
HTTP_OK = 200
MICROSECOND = 1_000
_WORDS = frozenset({"text", "reasoning"})

How = Literal["done", "cut", "timeout", "left", "cancelled"]
"""How the transport ended: whole by the rules of HTTP, broken off, or closed by the client."""


LABEL_PREFIX = b"x-cutover-"
FIRST_FINAL_STATUS = 200
RECEIVE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Planned:
    """The run a request belongs to, and when it was due: monotonic nanoseconds.

    `leaves` is when its client leaves, seconds after sending.
    """

    run: int
    stack: str
    message_id: str
    scheduled: int
    leaves: float | None = None

    def patience(self, longest: float) -> tuple[float, How]:
        """Return the seconds after which the client closes the connection, and what that is."""
        if self.leaves is not None and self.leaves < longest:
            return self.leaves, "left"
        return longest, "timeout"


@dataclass(slots=True)
class StreamMeter:
    """Takes one response as it arrives. `at` is always `time.monotonic_ns()` of the arrival."""

    spec: FlowSpec
    planned: Planned
    sent: int
    stall: float = field(default=STALL_SECONDS, kw_only=True)
    _reader: WireReader = field(init=False)
    _status: int = field(default=0, init=False)
    _headers: int | None = field(default=None, init=False)
    _labels: dict[str, str] = field(default_factory=dict, init=False)
    _refusal: bytes = field(default=b"", init=False)
    _events: int = field(default=0, init=False)
    _first_event: int | None = field(default=None, init=False)
    _first_text: int | None = field(default=None, init=False)
    _terminal: int | None = field(default=None, init=False)
    _content_stamps: list[int] = field(default_factory=list, init=False)
    _failed: bool = field(default=False, init=False)
    _code: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._reader = WireReader(self.spec.decoder)

    def started(self, status: int, labels: dict[str, str], at: int) -> None:
        """Take the response's status and those headers that belong to the row."""
        self._status = status
        self._labels = labels
        self._headers = at - self.sent

    def body(self, piece: bytes, at: int) -> None:
        """Take the next bytes of the body, cut anywhere."""
        if self._status != HTTP_OK:
            self._refusal = (self._refusal + piece)[:REFUSAL_BYTES]
            return
        after = at - self.sent
        for event in self._reader.feed(piece):
            self._event(event, after)

    def _event(self, event: WireEvent, after: int) -> None:
        if event.skipped:
            return
        self._events += 1
        if self._first_event is None:
            self._first_event = after
        if event.malformed:
            self._fails("malformed")
            return
        grown = self._reader.grown(event)
        if "text" in grown and self._first_text is None:
            self._first_text = after
        if not grown.isdisjoint(_WORDS):
            self._content_stamps.append(after)
        failure = event.failure
        if failure is not None:
            self._fails(failure)
        if event.ends and self._terminal is None:
            self._terminal = after

    def _fails(self, code: str) -> None:
        self._failed = True
        self._code = self._code or code

    def row(self, how: How, at: int, *, code: str = "") -> LoadRow:
        """Return the row of the response; `code` is the transport's name for what went wrong."""
        ended = at - self.sent
        if how == "done":
            self._end(ended)
        stamps = self._content_stamps
        ending, own = self._ending(how)
        quiet = [*stamps, self._terminal if self._terminal is not None else ended]
        return LoadRow(
            run=self.planned.run,
            stack=self.planned.stack,
            flow=self.spec.name,
            message_id=self.planned.message_id,
            scheduled=self.planned.scheduled,
            sent=self.sent,
            status=self._status,
            headers=self._headers,
            first_event=self._first_event,
            first_token=stamps[0] if stamps else None,
            first_text=self._first_text,
            last_content=stamps[-1] if stamps else None,
            terminal=self._terminal,
            ended=ended,
            ending=ending,
            code=own or ("" if ending == "complete" else code),
            events=self._events,
            contents=len(stamps),
            comments=self._reader.keepalives,
            gaps=tuple(gap // MICROSECOND for gap in _gaps(stamps)),
            stalls=sum(gap > self.stall * SECOND for gap in _gaps(quiet)),
            leaves=None if self.planned.leaves is None else int(self.planned.leaves * SECOND),
            labels=self._labels,
        )

    def _end(self, after: int) -> None:
        """The body is whole: where nothing else ends a stream of this wire, its end does.

        An empty one is no stream.
        """
        if self._status != HTTP_OK:
            return
        for event in self._reader.flush():
            self._event(event, after)
        if not self.spec.dialect.terminal and self._terminal is None and self._events:
            self._terminal = after

    def _ending(self, how: How) -> tuple[Ending, str]:
        match how:
            case "timeout" | "left" | "cancelled":
                return how, ""
            case "cut" if self._status == 0:
                return "unreachable", ""
            case "done" | "cut":
                return self._answered(how)
            case _:
                assert_never(how)

    def _answered(self, how: Literal["done", "cut"]) -> tuple[Ending, str]:
        if self._status != HTTP_OK:
            return "refused", _refusal_code(self._refusal) or f"http_{self._status}"
        if self._failed:
            return "error", self._code or "failed"
        if how == "cut":
            return "truncated", ""
        if self._terminal is None:
            return "truncated", "no_terminal"
        return "complete", ""


_ACCEPTED = {
    "sse": "text/event-stream",
    "ndjson": "application/x-ndjson, */*",
    "text": "text/plain, */*",
}


def accepted(dialect: Dialect) -> str:
    """Return the media types a client of a dialect asks for."""
    return _ACCEPTED[dialect.framing]


def _gaps(stamps: list[int]) -> list[int]:
    return [later - earlier for earlier, later in pairwise(stamps)]


def _refusal_code(body: bytes) -> str:
    """Return the `code` of an `application/problem+json` body, "" when there is none."""
    try:
        return str(value_at(msgspec.json.decode(body), ("code",)) or "")
    except NO_JSON:
        return ""


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
        """Return how a response ended whose connection is closed now."""
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


@dataclass(frozen=True, slots=True)
class SocketAddress:
    """Where to connect to; `host` is a number."""

    family: socket.AddressFamily
    host: str
    port: int


def fetch(target: Target, payload: bytes, reader: ResponseReader) -> tuple[How, str]:
    """Send a request and read its response; returns how it ended, and the fault's name."""
    try:
        with _connected(target) as connection:
            connection.sendall(payload)
            return _read(connection, reader)
    except OSError as error:
        return reader.ended(), fault_code(error)


def _read(connection: socket.socket, reader: ResponseReader) -> tuple[How, str]:
    receive, now = connection.recv, time.monotonic_ns
    while not (reader.done or reader.broken):
        piece = receive(RECEIVE_BYTES)
        at = now()
        if not piece:
            return reader.ended(), "closed"
        reader.feed(piece, at)
    return ("done", "") if reader.done else ("cut", "malformed_http")


def _connected(target: Target) -> socket.socket:
    plain = _plain(resolved(target.host, target.port))
    if not target.tls:
        return plain
    try:
        return tls_context().wrap_socket(plain, server_hostname=target.host)
    except BaseException:
        plain.close()
        raise


def _plain(address: SocketAddress) -> socket.socket:
    connection = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.connect((address.host, address.port))
    except BaseException:
        connection.close()
        raise
    return connection


@cache
def resolved(host: str, port: int) -> SocketAddress:
    """Look a name up, once: resolving is not what is measured.

    The first address that takes a connection (`localhost` may be two), else simply the first;
    raises OSError for an unknown name.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [SocketAddress(family, str(at[0]), int(at[1])) for family, _, _, _, at in found]
    return next(filter(_answers, addresses), addresses[0])


def _answers(address: SocketAddress) -> bool:
    try:
        _plain(address).close()
    except OSError:
        return False
    return True


@cache
def tls_context() -> ssl.SSLContext:
    """Make the context of all encrypted connections, once."""
    return ssl.create_default_context()


def fault_code(error: OSError) -> str:
    """Name a network fault: `ECONNREFUSED`, or the class where there is no number."""
    return errno.errorcode.get(error.errno or 0, type(error).__name__)
