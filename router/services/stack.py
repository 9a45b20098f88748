"""A service behind an address as a stack: its answer, event by event, as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from yarl import URL

from cutover.errors import StackFailed
from cutover.flow import Event, Request
from cutover.tape import current_run
from cutover.tape.exchange import current
from cutover.wire import AnswerHead, Dialect, End, Piece, WholeBody
from router.driver import STREAM_BYTES, Runaway
from router.gateway.providers import FRAMED, NOT_FORWARDED, STATUSES, forwarded
from router.gateway.runs import OpenRuns, headers
from router.services.flow import ServiceRequest

CONNECT_SECONDS = 5.0
PIECE_BYTES = 4096
"""Bytes that are read at once: a service that sends thousands of tiny events holds up no other."""
_NOT_SENT: Final = NOT_FORWARDED | {"traceparent", "tracestate"}
_NOT_RETURNED: Final = _NOT_SENT | {"content-encoding", "server", "date", "alt-svc"}
_CODES: Final[Mapping[type[Exception], str]] = {
    TimeoutError: "service_silent",
    aiohttp.ClientPayloadError: "service_cut",
    Exception: "service_unavailable",
}
_KNOWN: Final = {"content-encoding": {"", "identity"}, "transfer-encoding": FRAMED}
_WITHOUT_BODY: Final = frozenset({204, 304})
_FRAMINGS: Final[Mapping[str, frozenset[str]]] = {
    "sse": frozenset({"text/event-stream"}),
    "ndjson": frozenset(
        {"application/x-ndjson", "application/jsonl", "application/json-lines", "text/plain"}
        | {"application/ndjson", "application/stream+json", "application/octet-stream"}
    ),
    "text": frozenset({"text/plain"}),
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a service is, and how it is asked.

    `silence_seconds` may pass without a byte, `total_seconds` until the end. `headers` are sent
    with each request, such as a key of its own. It is `shadow_safe` where a request that is made
    twice does no harm.
    """

    url: str
    silence_seconds: float = 60.0
    total_seconds: float = 600.0
    headers: Mapping[str, str] = field(default_factory=dict)
    shadow_safe: bool = False


class _Reused:
    """Whether a request went out on a connection that an earlier one had opened."""

    reused = False


async def _on_reuse(_: Any, context: Any, __: Any) -> None:
    context.trace_request_ctx.reused = True


def open_session() -> aiohttp.ClientSession:
    """Return the connections of a router to its services; to be closed by the caller."""
    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(_on_reuse)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,  # what is compressed is refused
        trace_configs=[trace],
        read_bufsize=1 << 18,
    )


@dataclass(frozen=True, slots=True)
class Service:
    """A stack: sends the client's request to a service and yields its answer.

    A request that finds its kept connection closed, before anything of the answer has come, is sent
    once more on a fresh one. Raises `StackFailed`: `service_unavailable`, `service_silent`,
    `service_cut`, `service_encoding`, `runaway`.
    """

    address: Address
    dialect: Dialect
    session: aiohttp.ClientSession
    runs: OpenRuns
    gateway: str = ""
    """The address of this process' gateway, for what the service asks of models."""
    gateway_key: str = ""

    async def __call__(self, request: Request[Any, Any]) -> AsyncIterator[Event]:
        """Yield the events of a service's answer."""
        body: ServiceRequest = request.body
        reused = _Reused()
        try:
            try:
                response = await self._send(body, request.headers, reused)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if not reused.reused:
                    raise
                response = await self._send(body, request.headers, _Reused())
            async with response:
                async for event in self._events(response):
                    yield event
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            code = next(code for kind, code in _CODES.items() if isinstance(error, kind))
            raise StackFailed(code, detail=f"{type(error).__name__}: {error}") from error

    async def _send(
        self, body: ServiceRequest, given: Sequence[tuple[str, str]], reused: _Reused
    ) -> aiohttp.ClientResponse:
        run, own = current_run(), {"accept-encoding": "identity"}
        if run is not None:
            own |= headers(self.runs.open(run), self.gateway, self.gateway_key)
        kept = _NOT_SENT | {name.lower() for name in self.address.headers}
        passed = [(name, _text(value)) for name, value in given if forwarded(name, kept)]
        none = current.set(None)  # the connection is the router's own: no escape of the run's
        try:
            return await self.session.request(
                body.method,
                URL(self.address.url.rstrip("/") + body.target, encoded=True),
                data=body.data or None,
                headers=[*passed, *own.items(), *self.address.headers.items()],
                skip_auto_headers=("user-agent", "content-type", "accept"),
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=self.address.total_seconds,
                    sock_connect=CONNECT_SECONDS,
                    sock_read=self.address.silence_seconds,
                ),
                trace_request_ctx=reused,
            )
        finally:
            current.reset(none)

    async def _events(self, response: aiohttp.ClientResponse) -> AsyncIterator[Event]:
        if response.status not in STATUSES:
            raise StackFailed(code="service_unavailable", detail=f"status {response.status}")
        for name, known in _KNOWN.items():
            if (encoding := response.headers.get(name, "").strip().lower()) not in known:
                raise StackFailed(code="service_encoding", detail=f"encoding {encoding!r}")
        headers = [
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in response.raw_headers
        ]
        passed = tuple(one for one in headers if forwarded(one[0], _NOT_RETURNED))
        head = AnswerHead(response.status, passed)
        yield head
        empty = response.method == "HEAD" or response.status in _WITHOUT_BODY
        if empty or not response.ok or head.media not in _FRAMINGS[self.dialect.framing]:
            yield WholeBody(await _whole(response))
            return
        async for piece in response.content.iter_chunked(PIECE_BYTES):
            yield Piece(piece)
        yield End()


def _text(value: str) -> str:
    """Return a header's value as text, which aiohttp sends as UTF-8; latin-1 is no UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > STREAM_BYTES:
            raise Runaway
    return bytes(body)
