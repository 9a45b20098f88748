"""Sends one request and reads its stream: when it was due, what came when, how it ended.

Locust's own clients read blocks and stop their clock at the headers; this reads what has arrived.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final, Literal
from urllib.parse import SplitResult, urlsplit

import msgspec

from cutover.errors import Completed, Failed
from cutover.wire import BlockTooLong, Dialect, Reader
from loadtests.rows import Ending, Row

OK: Final = 200
PIECE_BYTES: Final = 1 << 16
READ: Final = ("content", "reasoning")
"""Channels of what a user reads; tool calls are none."""
SERVED_BY: Final = b": served-by "
"""The comment by which a router says that another stack has taken over."""

Clock = Callable[[], float]
Cut = Literal["", "unreachable", "timeout", "stopped"]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request: a `url` with path and query, and what is sent there."""

    method: str = "POST"
    url: str
    headers: dict[str, str] = {}
    body: bytes = b""


class Meter:
    """Reads one stream, sans I/O; moments are seconds of `clock`, `due` is one of them."""

    def __init__(self, dialect: Dialect, due: float, clock: Clock = time.monotonic) -> None:
        self._reader = Reader(dialect, joins=True)
        self._due, self._clock = due, clock
        self._sent = self._ended = clock()
        self._first: float | None = None
        self._over: float | None = None
        self._last = self._gap = 0.0
        self._ending: Ending = "stopped"
        self._status = self._pieces = self._received = 0
        self._code = self._served = ""
        self._labels: dict[str, str] = {}

    def begin(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Take the head of the answer."""
        self._status = status
        self._labels = {name.lower(): value for name, value in headers}
        self._served = self._labels.get("x-cutover-served", "")

    def feed(self, piece: bytes) -> None:
        """Take bytes of the body, which have just arrived."""
        at = self._clock()
        self._received += len(piece)
        for frame in self._reader.feed(piece) if self._status == OK else ():
            if any(text and channel.startswith(READ) for channel, text in frame.texts):
                self._pieces += 1
                if self._first is None:
                    self._first = self._last = at
                self._gap, self._last = max(self._gap, at - self._last), at
            if frame.raw.startswith(SERVED_BY):
                self._served = frame.raw.removeprefix(SERVED_BY).split()[0].decode()
            if frame.verdict == "terminal" and self._over is None:
                self._over = at

    def end(self, cut: Cut = "", code: str = "") -> None:
        """End the reading; `cut` is why the body has not ended, `code` names the fault."""
        self._ended, self._code = self._clock(), code
        if not self._status:
            self._ending = cut or "unreachable"
        elif self._status != OK:
            self._ending, self._code = "refused", f"http_{self._status}"
        else:
            self._reader.close(torn=bool(cut))
            match self._reader.ending:
                case Completed():
                    self._ending, self._code = "complete", ""
                case Failed(code="truncated"):
                    self._ending = cut if cut in {"timeout", "stopped"} else "truncated"
                case Failed(code=reported):
                    self._ending, self._code = "failed", reported

    def row(self, flow: str, stack: str, run: int, began: float) -> Row:
        """Return the request's row; `began` is when its process began to load."""
        return Row(
            flow=flow,
            stack=stack,
            run=run,
            due=round(self._due - began, 6),
            sent_ms=self._ms(self._sent),
            ttft_ms=None if self._first is None else self._ms(self._first),
            gap_ms=round(self._gap * 1000, 3),
            ended_ms=self._ms(self._ended if self._over is None else self._over),
            ending=self._ending,
            code=self._code,
            pieces=self._pieces,
            received=self._received,
            assigned=self._labels.get("x-cutover-assigned", ""),
            served=self._served,
            exchange=self._labels.get("x-cutover-exchange", ""),
        )

    def _ms(self, moment: float) -> float:
        return round((moment - self._due) * 1000, 3)


def send(asked: Asked, meter: Meter, patience: float) -> None:
    """Send a request on a connection of its own and read its answer, for `patience` seconds.

    A new client pays for its connection, too; and none dies of one that the server had closed.
    """
    until = time.monotonic() + patience
    parts = urlsplit(asked.url)
    connection = _connection(parts, patience)
    try:
        target = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
        headers = {**asked.headers, "connection": "close"}
        connection.request(asked.method, target, asked.body or None, headers)
        response = connection.getresponse()
        meter.begin(response.status, response.headers.items())
        while piece := response.read1(PIECE_BYTES):
            meter.feed(piece)
            if time.monotonic() > until:
                raise TimeoutError  # noqa: TRY301 - as a socket's
        meter.end("unreachable" if response.length else "")
    except TimeoutError:
        meter.end("timeout", "timeout")
    except (OSError, HTTPException, BlockTooLong) as error:
        meter.end("unreachable", type(error).__name__)
    finally:
        connection.close()


def _connection(parts: SplitResult, patience: float) -> HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "https":
        return HTTPSConnection(host, parts.port, timeout=patience, context=_tls())
    return HTTPConnection(host, parts.port, timeout=patience)


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
