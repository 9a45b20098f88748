"""Transports of httpx and httpx2 that put the requests of unmodified SDKs on the tape."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import closing
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import httpx

from cutover.tape.entry import Call, Item
from cutover.tape.http_entry import BodySplitter, head_item, http_call, read_head
from cutover.tape.portal import call_blocking
from cutover.tape.remote import RemoteRun
from cutover.tape.run import CallFailed, Run, current_run, playing, run_for

if TYPE_CHECKING or find_spec("httpx2"):
    import httpx2

    class _Transport(
        httpx.AsyncBaseTransport,
        httpx.BaseTransport,
        httpx2.AsyncBaseTransport,
        httpx2.BaseTransport,
    ):
        """A transport of every kind of client."""

        async def handle_async_request(self, request: Any) -> Any:
            """Answer a request of either library."""
            raise NotImplementedError

        def handle_request(self, request: Any) -> Any:
            """Answer a request of either library."""
            raise NotImplementedError

    class _Stream(
        httpx.AsyncByteStream, httpx.SyncByteStream, httpx2.AsyncByteStream, httpx2.SyncByteStream
    ):
        """A body of every kind of response."""

else:

    class _Transport(httpx.AsyncBaseTransport, httpx.BaseTransport):
        """A transport of both kinds of client."""

    class _Stream(httpx.AsyncByteStream, httpx.SyncByteStream):
        """A body of both kinds of response."""


class TapeTransport(_Transport):
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
        run, call = None, None
        if current_run() is not None or playing:
            await request.aread()
            call = _call(request)
            run = run_for(call.name, writes=call.writes)
        if run is None or call is None:
            return await self._async_inner(request).handle_async_request(request)
        if call.model and isinstance(run, RemoteRun):
            return await self._pool(request).handle_async_request(run.rerouted(request))
        performed: list[bool] = []

        def perform() -> AsyncIterator[Item]:
            performed.append(True)
            return self._send(request)

        items = run.call(call, perform)
        try:
            head = await anext(items)
        except CallFailed as failed:
            raise _error(request, failed) from failed.error
        return _response(run, request, head, _Body(request, items), played=not performed)

    def handle_request(self, request: Any) -> Any:
        """Answer a request of a blocking client."""
        run, call = None, None
        if current_run() is not None or playing:
            request.read()
            call = _call(request)
            run = run_for(call.name, writes=call.writes)
        if run is None or call is None:
            return self._blocking_inner(request).handle_request(request)
        if call.model and isinstance(run, RemoteRun):
            return self._blocking_pool(request).handle_request(run.rerouted(request))
        performed: list[bool] = []

        def perform() -> Iterator[Item]:
            performed.append(True)
            return self._send_blocking(request)

        items = call_blocking(run, call, perform)
        try:
            head = next(items)
        except CallFailed as failed:
            raise _error(request, failed) from failed.error
        return _response(run, request, head, _BlockingBody(request, items), played=not performed)

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

    def _async_inner(self, request: Any) -> Any:
        return self._inner or self._pool(request)

    def _pool(self, request: Any) -> Any:
        opened = self._by_loop.setdefault(asyncio.get_running_loop(), {})
        library = _library(request)
        if library.__name__ not in opened:
            opened[library.__name__] = library.AsyncHTTPTransport(**_settings(library))
        return opened[library.__name__]

    def _blocking_inner(self, request: Any) -> Any:
        return self._inner or self._blocking_pool(request)

    def _blocking_pool(self, request: Any) -> Any:
        library = _library(request)
        if library.__name__ not in self._blocking:
            self._blocking[library.__name__] = library.HTTPTransport(**_settings(library))
        return self._blocking[library.__name__]

    async def _send(self, request: Any) -> AsyncIterator[Item]:
        request.headers["accept-encoding"] = "identity"
        response = await self._async_inner(request).handle_async_request(request)
        response.request = request
        try:
            yield _head(response)
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
        with closing(self._blocking_inner(request).handle_request(request)) as response:
            response.request = request
            yield _head(response)
            body = BodySplitter(response.headers.get("content-type", ""))
            for piece in response.iter_bytes():
                yield from body.feed(piece)
            yield from body.flush()


class _Body(_Stream):
    def __init__(self, request: Any, items: AsyncGenerator[Item, None]) -> None:
        self._request, self._items = request, items

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for item in self._items:
                if isinstance(item, bytes):
                    yield item
        except CallFailed as failed:
            raise _error(self._request, failed) from failed.error

    async def aclose(self) -> None:
        await self._items.aclose()


class _BlockingBody(_Stream):
    def __init__(self, request: Any, items: Generator[Item, None, None]) -> None:
        self._request, self._items = request, items

    def __iter__(self) -> Iterator[bytes]:
        try:
            for item in self._items:
                if isinstance(item, bytes):
                    yield item
        except CallFailed as failed:
            raise _error(self._request, failed) from failed.error

    def close(self) -> None:
        self._items.close()


def _call(request: Any) -> Call:
    target = request.url.raw_path.decode("ascii")
    media = request.headers.get("content-type", "")
    return http_call(request.method, target, media, request.content, request.url.host)


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


def _head(response: Any) -> bytes:
    return head_item(response.status_code, response.headers.raw)


def _response(run: Run, request: Any, item: Item, stream: _Stream, *, played: bool) -> Any:
    head = read_head(run, item, played=played)
    raw = [(name.encode(), value.encode("latin-1")) for name, value in head.headers]
    return _library(request).Response(head.status, headers=raw, stream=stream, request=request)


def _error(request: Any, failed: CallFailed) -> Exception:
    """Return what a transport raised, as the reading client's library raises it."""
    library = _library(request)
    names = {"TimeoutError": "ReadTimeout", "Cut": "ReadError", "NotStored": "ReadError"}
    kind = getattr(library, names.get(failed.fault.kind, failed.fault.kind), None)
    if not (isinstance(kind, type) and issubclass(kind, library.RequestError)):
        kind = library.TransportError
    error: Exception = kind(failed.fault.message, request=request)
    return error
