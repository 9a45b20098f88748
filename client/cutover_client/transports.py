"""Transports of httpx and httpx2 that take the calls of a client onto the tape of the exchange."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import aclosing, closing, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import httpx

from cutover_client.exchange import current_exchange
from cutover_client.requests import Answer, Head, HttpFailed, HttpRequest, without_secrets

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


_DECODED = frozenset({"content-encoding", "content-length", "transfer-encoding", "connection"})
_CONNECTIONS = {"max_connections": 1000, "max_keepalive_connections": 100}
"""As the SDKs of OpenAI and Anthropic have them."""


class CutoverTransport(_Transport):
    """A transport for clients of httpx and httpx2, blocking or not, as SDKs of models take them.

        AsyncOpenAI(http_client=httpx2.AsyncClient(transport=CutoverTransport()))

    In an exchange that runs in the router's process, a request is sent by the run that serves, and
    recorded; any other run gets the recorded answer, and sends nothing. Elsewhere it is passed to
    `inner`, without one to a transport with the library's defaults.

    A request of an exchange is sent on the router's loop; by an `inner` that blocks, in a thread.
    """

    def __init__(self, inner: Any = None) -> None:
        self._inner = inner
        self._blocking: Any = None
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()

    async def handle_async_request(self, request: Any) -> Any:
        """Answer a request of a client that does not block."""
        exchange = current_exchange()
        if exchange is None:
            return await self._async_inner(request).handle_async_request(request)
        await request.aread()
        answer = exchange.answer(_plain(request), lambda: self._send(request))
        if answer is None:
            return await self._async_inner(request).handle_async_request(request)
        return await _response(request, answer)

    def handle_request(self, request: Any) -> Any:
        """Answer a request of a client that blocks."""
        exchange = current_exchange()
        if exchange is None:
            return self._blocking_inner(request).handle_request(request)
        request.read()
        answer = exchange.answer_blocking(_plain(request), lambda: self._send(request))
        if answer is None:
            return self._blocking_inner(request).handle_request(request)
        return _blocking_response(request, answer)

    async def aclose(self) -> None:
        """Close the connections of this loop, and those of others as soon as they run."""
        for loop, inner in [*self._by_loop.items()]:
            if loop is not asyncio.get_running_loop():
                _close_on(loop, inner)
            else:
                await inner.aclose()
        self._by_loop.clear()
        if hasattr(self._inner, "aclose"):
            await self._inner.aclose()

    def close(self) -> None:
        """Close the connections."""
        for loop, inner in [*self._by_loop.items()]:
            _close_on(loop, inner)
        self._by_loop.clear()
        for inner in (self._inner, self._blocking):
            if hasattr(inner, "close"):
                inner.close()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _async_inner(self, request: Any) -> Any:
        if self._inner is not None:
            return self._inner
        loop = asyncio.get_running_loop()
        inner = self._by_loop.get(loop)
        if inner is None:
            library = _library(request)
            inner = library.AsyncHTTPTransport(limits=library.Limits(**_CONNECTIONS))
            self._by_loop[loop] = inner
        return inner

    def _blocking_inner(self, request: Any) -> Any:
        if self._inner is not None:
            return self._inner
        if self._blocking is None:
            library = _library(request)
            self._blocking = library.HTTPTransport(limits=library.Limits(**_CONNECTIONS))
        return self._blocking

    async def _send(self, request: Any) -> Answer:
        """Send a request, on the loop that the run is on."""
        if self._inner is not None and not hasattr(self._inner, "handle_async_request"):
            answer = _in_thread(self._inner, request)
        else:
            answer = _sent(self._async_inner(request), request)
        async with aclosing(answer) as pieces:
            async for piece in pieces:
                yield piece


def _library(request: Any) -> Any:
    """Return the module that a request is of: httpx or httpx2."""
    return sys.modules[type(request).__module__.partition(".")[0]]


def _plain(request: Any) -> HttpRequest:
    path, _, query = request.url.raw_path.decode("ascii").partition("?")
    return HttpRequest(
        request.method,
        path,
        without_secrets(query),
        request.headers.get("content-type", ""),
        request.content,
    )


def _head(response: Any) -> Head:
    headers = [(name.lower(), value) for name, value in response.headers.items()]
    return Head(response.status_code, tuple(one for one in headers if one[0] not in _DECODED))


async def _sent(inner: Any, request: Any) -> Answer:
    library = _library(request)
    try:
        response = await inner.handle_async_request(request)
        response.request = request
        try:
            yield _head(response)
            async with aclosing(response.aiter_bytes()) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            await response.aclose()
    except library.RequestError as error:
        raise HttpFailed(type(error).__name__) from error


async def _in_thread(inner: Any, request: Any) -> Answer:
    """Send a request in a thread; where it is not read to its end, break the connection off."""
    library = _library(request)
    loop = asyncio.get_running_loop()
    told: asyncio.Queue[Head | bytes | BaseException | None] = asyncio.Queue()
    left = threading.Event()
    opened: list[Any] = []

    def tell(what: Head | bytes | BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(told.put_nowait, what)

    def work() -> None:
        try:
            with closing(inner.handle_request(request)) as response:
                response.request = request
                opened.append(response)
                tell(_head(response))
                for piece in response.iter_bytes():
                    if left.is_set():
                        break
                    tell(piece)
        except library.RequestError as error:
            tell(HttpFailed(type(error).__name__))
        except Exception as error:  # noqa: BLE001 - raised where it is read
            tell(error)
        else:
            tell(None)

    threading.Thread(target=work, name="cutover call of the model", daemon=True).start()
    try:
        while (what := await told.get()) is not None:
            if isinstance(what, BaseException):
                raise what
            yield what
    finally:
        left.set()
        for response in opened:
            _break_off(response)


def _break_off(response: Any) -> None:
    """Wake a thread that waits for more of a response."""
    stream = response.extensions.get("network_stream")
    connected = None if stream is None else stream.get_extra_info("socket")
    if connected is not None and not response.is_closed:
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)


def _close_on(loop: asyncio.AbstractEventLoop, inner: Any) -> None:
    with suppress(RuntimeError):  # the loop has been closed, and its connections with it
        loop.call_soon_threadsafe(lambda: loop.create_task(inner.aclose()))


def _raised(request: Any, failed: HttpFailed) -> Exception:
    """Return what the transport raised, as another one raises it."""
    library = _library(request)
    kind = getattr(library, failed.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, library.RequestError)):
        kind = library.TransportError
    raised: Exception = kind(str(failed), request=request)
    return raised


async def _response(request: Any, answer: Answer) -> Any:
    try:
        head = await anext(answer)
    except HttpFailed as failed:
        raise _raised(request, failed) from failed
    return _made(request, head, _AsyncBody(request, answer))


def _blocking_response(request: Any, answer: Generator[Head | bytes, None, None]) -> Any:
    try:
        head = next(answer)
    except HttpFailed as failed:
        raise _raised(request, failed) from failed
    return _made(request, head, _BlockingBody(request, answer))


def _made(request: Any, head: Head | bytes, stream: _Stream) -> Any:
    if not isinstance(head, Head):
        raise TypeError(type(head).__name__)
    extensions = {"cutover": head.cause} if head.cause is not None else {}
    return _library(request).Response(
        head.status, headers=list(head.headers), stream=stream, extensions=extensions
    )


class _AsyncBody(_Stream):
    def __init__(self, request: Any, answer: Answer) -> None:
        self._request = request
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._answer:
                if isinstance(piece, bytes):
                    yield piece
        except HttpFailed as failed:
            raise _raised(self._request, failed) from failed

    async def aclose(self) -> None:
        await self._answer.aclose()


class _BlockingBody(_Stream):
    def __init__(self, request: Any, answer: Generator[Head | bytes, None, None]) -> None:
        self._request = request
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._answer:
                if isinstance(piece, bytes):
                    yield piece
        except HttpFailed as failed:
            raise _raised(self._request, failed) from failed

    def close(self) -> None:
        self._answer.close()
