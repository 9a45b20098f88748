"""Sends one request and reads its stream: what came when, counted from the moment it was due.

Locust's own clients read blocks and stop their clock at the headers; this reads what has arrived.
"""

import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from http.client import HTTPConnection
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from cutover.errors import Completed, Failed
from cutover.wire import Dialect, Reader, events, payload
from cutover.wire.dialect import TokensAt, values
from loadtests.rows import Row

OK: Final = 200
PIECE_BYTES, MOST_SHOWN = 1 << 16, 80
READ: Final = ("content", "reasoning")
"""Channels of what a user reads; tool calls are none."""
SERVED_BY: Final = b": served-by "
"""The comment by which a router says that another stack has taken over."""
TLS: Final = ssl.create_default_context()
Cut = Literal["", "unreachable", "timeout", "stopped"]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request: a `url` with path and query, and what is sent there."""

    method: str = "POST"
    url: str
    headers: dict[str, str] = {}
    body: bytes = b""


class Meter:
    """Reads one stream into its row, sans I/O; `due` and the clock are in seconds."""

    def __init__(
        self, dialect: Dialect, row: Row, due: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.row = row
        self._reader, self._counted = Reader(dialect), dialect.tokens
        self._tokens: dict[str, int] = {}
        self.ids: dict[str, Any] = {}
        self.ended: Callable[[], object] = dict  # called when the answer has ended
        self._due, self._clock = due, clock
        self._last = row.sent_ms = self._now()
        self._status = 0

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the head of the answer."""
        self._status = status
        for name in ("assigned", "served", "exchange"):
            setattr(self.row, name, headers.get(f"x-cutover-{name}", ""))

    def feed(self, piece: bytes) -> None:
        """Take bytes of the body, which have just arrived."""
        at, row = self._now(), self.row
        row.received += len(piece)
        for frame in self._reader.feed(piece) if self._status == OK else ():
            if any(text and channel.startswith(READ) for channel, text in frame.texts):
                row.pieces += 1
                if row.ttft_ms is None:
                    row.ttft_ms = self._last = at
                row.gap_ms, self._last = max(row.gap_ms, round(at - self._last, 3)), at
            if self._counted is not None and b"tokens" in frame.raw:
                self._count(self._counted, frame.raw)
            if frame.raw.startswith(SERVED_BY):
                row.served = frame.raw.removeprefix(SERVED_BY).split()[0].decode()
            if frame.verdict == "terminal" and row.ended_ms is None:
                self._answered(at)

    def end(self, cut: Cut = "", code: str = "") -> None:
        """End the reading; `cut` is why the body has not ended, `code` names the fault."""
        row = self.row
        if row.ended_ms is None:
            self._answered(self._now())
        row.tokens = sum(self._tokens.values()) or None
        if row.ttft_ms is not None and self._last > row.ttft_ms:
            each = 1000 / (self._last - row.ttft_ms)  # the first was there when the clock began
            row.pieces_s = round((row.pieces - 1) * each, 3)
            row.tokens_s = round((row.tokens - 1) * each, 3) if row.tokens else None
        if self._status != OK:
            row.ending = "refused" if self._status else cut or "unreachable"
            row.code = f"http_{self._status}" if self._status else code
            return
        self._reader.close(torn=bool(cut))
        match self._reader.ending:
            case Completed():
                row.ending = "complete"
            case Failed(code="truncated"):
                row.ending = cut if cut in {"timeout", "stopped"} else "truncated"
                row.code = code
            case Failed(code=kind, detail=reported):
                row.ending, row.code = "failed", (reported or kind)[:MOST_SHOWN]

    def _count(self, at: TokensAt, raw: bytes) -> None:
        """Note the tokens that an event tells; those of one answer are its tokens so far."""
        for data in [one.data for one in events(raw)] or [payload(raw)]:
            with suppress(ValueError, RecursionError):
                event = msgspec.json.decode(data)
                answer = str(values(event, at.by)) if at.by else ""
                told = [one for one in values(event, at.path) if isinstance(one, int)]
                self._tokens[answer] = max([self._tokens.get(answer, 0), *told])

    def _answered(self, at: float) -> None:
        """Note the end of the answer, and the first generated id of each kind, for a next turn."""
        self.row.ended_ms = at
        self.ids = {kind: next(iter(found)) for kind, found in self._reader.ids.items()}
        self.ended()

    def _now(self) -> float:
        return round((self._clock() - self._due) * 1000, 3)


def send(asked: Asked, meter: Meter, patience: float) -> None:
    """Send a request on a connection of its own and read its answer, for `patience` seconds.

    A new client pays for its connection, too; and none dies of one that the server had closed.
    """
    until, parts = time.monotonic() + patience, urlsplit(asked.url)
    host, https = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if https else 80)
    connection = HTTPConnection(host, port)
    try:
        family, address = _address(host, port)
        connection.sock = connected = socket.socket(family, socket.SOCK_STREAM)
        connected.settimeout(patience)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.connect(address)
        if https:
            connection.sock = TLS.wrap_socket(connected, server_hostname=host)
        target = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
        headers = {**asked.headers, "connection": "close"}
        connection.request(asked.method, target, asked.body or None, headers)
        response = connection.getresponse()
        meter.begin(response.status, {k.lower(): v for k, v in response.getheaders()})
        while piece := response.read1(PIECE_BYTES):
            meter.feed(piece)
            if time.monotonic() > until:
                raise TimeoutError  # noqa: TRY301 - as a socket's
        meter.end("unreachable" if response.length else "")
    except TimeoutError:
        meter.end("timeout", "timeout")
    except Exception as error:  # noqa: BLE001 - whatever it is, the request has ended
        meter.end("unreachable", type(error).__name__)
    finally:
        connection.close()


@cache
def _address(host: str, port: int) -> tuple[int, Any]:
    """Look a name up once: gevent does so in a thread, and it is not what is measured."""
    with socket.create_connection((host, port), timeout=10) as trial:
        return trial.family, trial.getpeername()
