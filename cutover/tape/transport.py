"""Transports of httpx and httpx2 that put the requests of unmodified SDKs on the tape."""

from __future__ import annotations

import asyncio
import codecs
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from email.utils import mktime_tz, parsedate_tz
from functools import cache, partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import httpx
import msgspec

from cutover.normal_form import read
from cutover.tape.entry import Call, Item
from cutover.tape.portal import call_blocking
from cutover.tape.remote import RemoteRun
from cutover.tape.run import CallFailed, Run, current_run, playing, run_for
from cutover.wire.splitters import SseSplitter

REQUEST_SECONDS = 600.0
"""What a request may take in all; silence is bounded by the client's own timeouts."""
MOST_WAIT_SECONDS = 120.0
"""The longest wait that a provider may ask for; OpenAI's SDK does not retry behind a longer one."""
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_KEPT = frozenset(
    {"content-type", "location", "request-id", "retry-after", "retry-after-ms"}
    | {"x-request-id", "x-should-retry"}
)
_FAILED = 400
_RETRIED = frozenset({408, 409, 429, *range(500, 600)})
"""Statuses behind which SDKs wait and ask again."""

if TYPE_CHECKING or find_spec("httpx2"):
    import httpx2
else:
    _BASES = ("AsyncBaseTransport", "BaseTransport", "AsyncByteStream", "SyncByteStream")
    httpx2 = SimpleNamespace(**{name: type(name, (), {}) for name in _BASES})


class TapeTransport(
    httpx.AsyncBaseTransport, httpx.BaseTransport, httpx2.AsyncBaseTransport, httpx2.BaseTransport
):
    """A transport for clients of httpx and httpx2, blocking or not, as SDKs of models take them.

        AsyncOpenAI(http_client=httpx2.AsyncClient(transport=TapeTransport()))
        ChatOpenAI(http_async_client=httpx2.AsyncClient(transport=TapeTransport()))

    In a run, a request is found on the tape by the normal form of its API, or sent through `inner`
    (by default a transport of the client's own library), in a service's `TapeMiddleware` through
    the router's gateway where it asks a model. Items are what the wire brought: a `HttpHead`,
    then one server-sent event an item, or the whole of another body. Outside a run it is `inner`.

    Requests ask for `identity` encoding. Methods other than GET, HEAD and OPTIONS are writes, but
    for the APIs of models. Credentials and headers never enter the tape.
    """

    def __init__(self, inner: Any = None) -> None:
        self._inner = inner
        self._blocking: dict[str, Any] = {}
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Any]] = (
            WeakKeyDictionary()
        )

    async def handle_async_request(self, request: Any) -> Any:
        """Answer a request of an asynchronous client."""
        if current_run() is not None or playing:
            await request.aread()
            call = _call(request)
            if (run := run_for(call.name, writes=call.writes)) is not None:
                if call.model and isinstance(run, RemoteRun):
                    return await self._own_pool(request).handle_async_request(run.rerouted(request))
                request, call = _forked(run, request, call)
                items = run.call(call, partial(self._send, request))
                with _errors_of(request):
                    return _response(run, call, request, await anext(items), items)
        return await self._pool(request).handle_async_request(request)

    def handle_request(self, request: Any) -> Any:
        """Answer a request of a blocking client."""
        if current_run() is not None or playing:
            request.read()
            call = _call(request)
            if (run := run_for(call.name, writes=call.writes)) is not None:
                if call.model and isinstance(run, RemoteRun):
                    pool = self._own_pool(request, blocking=True)
                    return pool.handle_request(run.rerouted(request))
                request, call = _forked(run, request, call)
                items = call_blocking(run, call, partial(self._send_blocking, request))
                with _errors_of(request):
                    return _response(run, call, request, next(items), items)
        return self._pool(request, blocking=True).handle_request(request)

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        opened = self._by_loop.pop(asyncio.get_running_loop(), {})
        for inner in (self._inner, *opened.values()):
            if hasattr(inner, "aclose"):
                await inner.aclose()

    def close(self) -> None:
        """Close the connections of blocking clients."""
        for inner in (self._inner, *self._blocking.values()):
            if hasattr(inner, "close"):
                inner.close()
        self._blocking.clear()

    def _pool(self, request: Any, *, blocking: bool = False) -> Any:
        return self._inner or self._own_pool(request, blocking=blocking)

    def _own_pool(self, request: Any, *, blocking: bool = False) -> Any:
        """Return connections of the request's library, of this event loop where they need one."""
        opened = self._blocking
        if not blocking:
            opened = self._by_loop.setdefault(asyncio.get_running_loop(), {})
        library = _library(request)
        if library.__name__ not in opened:
            kind = library.HTTPTransport if blocking else library.AsyncHTTPTransport
            opened[library.__name__] = kind(**_settings(library))
        return opened[library.__name__]

    async def _send(self, request: Any) -> AsyncIterator[Item]:
        request.headers["accept-encoding"] = "identity"
        response = await self._pool(request).handle_async_request(request)
        response.request = request
        try:
            yield head_item(response.status_code, response.headers.raw)
            body = BodySplitter(response.headers.get("content-type", ""))
            async for piece in response.aiter_bytes():  # decoded, where it is encoded all the same
                for item in body.feed(piece):
                    yield item
            for item in body.flush():
                yield item
        finally:
            await response.aclose()

    def _send_blocking(self, request: Any) -> Iterator[Item]:
        request.headers["accept-encoding"] = "identity"
        with closing(self._pool(request, blocking=True).handle_request(request)) as response:
            response.request = request
            yield head_item(response.status_code, response.headers.raw)
            body = BodySplitter(response.headers.get("content-type", ""))
            for piece in response.iter_bytes():
                yield from body.feed(piece)
            yield from body.flush()


class _Body(
    httpx.AsyncByteStream, httpx.SyncByteStream, httpx2.AsyncByteStream, httpx2.SyncByteStream
):
    """The body of an answer: the items behind its head."""

    def __init__(self, request: Any, items: Any) -> None:
        self._request, self._items = request, items

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _errors_of(self._request):
            async for item in self._items:
                yield item

    def __iter__(self) -> Iterator[bytes]:
        with _errors_of(self._request):
            yield from self._items

    async def aclose(self) -> None:
        await self._items.aclose()

    def close(self) -> None:
        self._items.close()


def _call(request: Any) -> Call:
    target = request.url.raw_path.decode("ascii")
    media = request.headers.get("content-type", "")
    return http_call(request.method, target, media, request.content, request.url.host)


def _forked(run: Run, request: Any, call: Call) -> tuple[Any, Call]:
    """Return a request with its call, as a fork makes it where that is live."""
    if (content := run.asked_anew(call, request.content)) is None:
        return request, call
    headers = [one for one in request.headers.raw if one[0].lower() != b"content-length"]
    more = {"headers": headers, "content": content, "extensions": request.extensions}
    made = type(request)(request.method, request.url, **more)
    return made, msgspec.structs.replace(_call(made), anew=True)


def _library(request: Any) -> Any:
    """Return the module that a request is of: httpx or httpx2."""
    return sys.modules[type(request).__module__.partition(".")[0]]


@cache
def _settings(library: Any) -> dict[str, Any]:
    """Return what connections are made with: limits as OpenAI's and Anthropic's SDKs have them.

    The trusted certificates are read once a process: that takes 30 ms, for each transport.
    """
    limits = library.Limits(max_connections=1000, max_keepalive_connections=100)
    return {"limits": limits, "verify": library.create_ssl_context()}


def _response(run: Run, call: Call, request: Any, first: Item, items: Any) -> Any:
    head = read_head(run, call, first)
    raw = [(name.encode(), value.encode("latin-1")) for name, value in head.headers]
    body = _Body(request, items)
    return _library(request).Response(head.status, headers=raw, stream=body, request=request)


@contextmanager
def _errors_of(request: Any) -> Iterator[None]:
    """Raise what a transport has raised as the library of the reading client raises it."""
    try:
        yield
    except CallFailed as failed:
        library = _library(request)
        names = {"TimeoutError": "ReadTimeout", "Cut": "ReadError", "NotStored": "ReadError"}
        kind = getattr(library, names.get(failed.fault.kind, failed.fault.kind), None)
        if not (isinstance(kind, type) and issubclass(kind, library.RequestError)):
            kind = library.TransportError
        raise kind(failed.fault.message, request=request) from failed.error


# An HTTP request on the tape: its call, and the head and the items of its answer.


class HttpHead(msgspec.Struct, frozen=True):
    """The first item of a request's entry: status and the headers that are kept."""

    status: int
    headers: list[tuple[str, str]]


def http_call(method: str, target: str, media: str, content: bytes, host: str = "") -> Call:
    """Return the call of a request; `target` is its path with the query, `media` its media type."""
    asked = read(method, target, media, content)
    writes = not asked.model and method not in _READS
    name, model = asked.name, asked.model
    return Call(name, asked.key, asked.canonical, writes, model, REQUEST_SECONDS, host)


def head_item(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the first item of a request's entry."""
    raw = ((name.decode("latin-1").lower(), value) for name, value in headers)
    kept = [(name, value.decode("latin-1")) for name, value in raw if name in _KEPT]
    return msgspec.json.encode(HttpHead(status, kept))


def read_head(run: Run, call: Call, item: Any) -> HttpHead:
    """Return the head of the answer to a call of `run`.

    A provider that tells a client to wait keeps its run from being called stalled. What is played
    says that no wait is due: the back-off was slept when it was live.
    """
    head, played = msgspec.json.decode(item, type=HttpHead), run.played(call)
    if not played and head.status in _RETRIED:
        until = run.exchange.loop.time() + min(_wait(dict(head.headers)), MOST_WAIT_SECONDS)
        run.not_before = max(run.not_before, until)
    if not played or head.status < _FAILED:
        return head
    headers = [one for one in head.headers if not one[0].startswith("retry-after")]
    return HttpHead(head.status, [*headers, ("retry-after-ms", "1")])


class BodySplitter:
    """Cuts a body into items: events of an SSE stream, pieces of others, JSON as a whole."""

    def __init__(self, content_type: str) -> None:
        media = content_type.partition(";")[0].strip().lower()
        self._sse = SseSplitter() if media == "text/event-stream" else None
        self._whole: list[bytes] | None = [] if media.endswith(("/json", "+json")) else None
        self._first = True

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next bytes; return the items they complete."""
        if self._sse is not None:
            blocks = self._sse.feed(piece)
            if blocks and self._first:  # SDKs read a byte order mark as part of the field's name
                self._first = False
                blocks[0] = blocks[0].removeprefix(codecs.BOM_UTF8)
            return blocks
        if self._whole is not None:
            self._whole.append(piece)
            return []
        return [piece] if piece else []

    def flush(self) -> list[bytes]:
        """End the body; return the items that only its end completes."""
        if self._sse is not None:
            return self._sse.flush()
        return [b"".join(self._whole)] if self._whole else []


def status_of(item: bytes) -> int:
    """Return the status in the first item of a request's entry."""
    return msgspec.json.decode(item, type=HttpHead).status


def _wait(headers: Mapping[str, str]) -> float:
    """Return the seconds that an answer tells its client to wait, as SDKs read them."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with suppress(KeyError, ValueError):
            return float(headers[name]) * unit
    with suppress(ValueError, OverflowError):
        if date := parsedate_tz(headers.get("retry-after", "")):
            return mktime_tz(date) - time.time()
    return 0.0
