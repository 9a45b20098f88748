"""The edge: bodies within their limits, problems, streams in pieces, and other origins' pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

import msgspec
from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cutover.errors import Failed, Refused
from cutover.flow import ClientRequest
from cutover.wire import comment

CONTENT_TYPE = "application/problem+json"
BODY_BYTES = 1 << 20
"""Bytes of a request's body, where its path sets no other limit."""
CLOSING = frozenset({408, 413})
"""Statuses behind which the rest of a request is not read."""
OVERLOADED = 503
SHOWN = ("x-cutover-exchange", "x-cutover-assigned", "x-cutover-served", "retry-after")
"""Headers of answers that pages of the configured origins may read."""
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
SILENCE_SECONDS = 15.0
"""Proxies take a stream that is silent for a minute, some for less, as dead."""
SLOW_SECONDS = 30.0
"""How long a client may take nothing of what is sent to it."""
BODY_SECONDS = 60.0
"""What a client may take to send its body; it takes no stream's place meanwhile."""


# --- Requests


async def read_body(receive: Receive, limit: int) -> bytes:
    """Return a request's body of at most `limit` bytes.

    Raises `Refused`: 400 for one cut short, 408 one that takes too long, 413 one too large.
    """
    pieces: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refused(400, "incomplete_body", "the body ended early")
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if size > limit:
                    raise Refused(413, "body_too_large", f"the body has more than {limit} bytes")
                more = message.get("more_body", False)
    except TimeoutError as error:
        detail = f"the body has not come within {BODY_SECONDS:g} s"
        raise Refused(408, "body_too_slow", detail) from error
    return b"".join(pieces)


async def client_request(
    scope: Scope, receive: Receive, limits: Mapping[str, int]
) -> ClientRequest:
    """Return what a client sent.

    Raises `Refused`: 400 for a body cut short, 408 one that takes too long, 413 one too large.
    """
    route = scope.get("route")
    path = route.path if isinstance(route, Route) else scope["path"]
    content = await read_body(receive, limits.get(path, BODY_BYTES))
    query = scope["query_string"]
    target = scope.get("raw_path", scope["path"].encode()) + (b"?" + query if query else b"")
    return ClientRequest(
        scope["method"],
        path,
        target.decode("latin-1"),
        [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]],
        content,
        scope.get("path_params", {}),
    )


@asynccontextmanager
async def while_connected(receive: Receive) -> AsyncIterator[None]:
    """Cancel the block, and leave it, when the client leaves.

    Raises `CancelledError` where the task is cancelled otherwise: the server stops.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a request runs in one

    async def cancel_when_left() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        task.cancel()

    watching = asyncio.create_task(cancel_when_left())
    try:
        yield
    except asyncio.CancelledError:
        if not watching.done():
            raise
        task.uncancel()
    finally:
        watching.cancel()


# --- Problems


def problem(status: int, code: str, detail: str = "") -> Response:
    """Return an answer as a problem document; `code` is stable, for programs.

    It never holds an exception's text.
    """
    body = {"title": HTTPStatus(status).phrase, "status": status, "code": code}
    headers = {"retry-after": "1"} if status == OVERLOADED else {}
    if status in CLOSING:
        headers["connection"] = "close"
    said = msgspec.json.encode(body | ({"detail": detail} if detail else {}))
    return Response(said, status, headers, CONTENT_TYPE)


def refused(error: Refused) -> Response:
    """Return a flow's own refusal."""
    return problem(error.status, error.code, error.detail)


def not_served(failed: Failed) -> Response:
    """Return the answer to a request that no stack served: 503 where the world is to blame."""
    return problem(503 if failed.blame == "world" else 500, failed.code)


async def respond(send: Send, response: Response) -> None:
    """Send a whole response."""
    head = {"status": response.status_code, "headers": response.raw_headers}
    await send({"type": "http.response.start", **head})
    await send({"type": "http.response.body", "body": response.body})


# --- Streams


class ResponseBody:
    """Sends the head, and pieces one after the other.

    async with body.open():
        await body.send(piece)              # and `end` behind the last

    `head` returns the head as it is known, and whether comments may stand between pieces. The
    block raises TimeoutError for a client that takes nothing for `SLOW_SECONDS`.
    """

    def __init__(self, send: Send, head: Callable[[], tuple[Message, bool]]) -> None:
        self._send, self._head = send, head
        self.begun = False
        """Whether the head has gone out: with the first piece, or the first comment."""
        self._loop = asyncio.get_running_loop()
        self._one = asyncio.Lock()
        self._sent = self._loop.time()
        self._waiting = False
        self._limit = asyncio.timeout(None)

    async def send(self, piece: bytes) -> None:
        """Send a piece, and wait until the client has taken enough of those before."""
        await self._next({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self) -> None:
        """End the body."""
        await self._next({"type": "http.response.body", "body": b""})

    async def _next(self, message: Message) -> None:
        async with self._one:
            self._sent, self._waiting = self._loop.time(), True
            if not self.begun:
                self.begun = True
                await self._send(self._head()[0])
            await self._send(message)
            self._waiting = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Send a comment where the block has sent nothing for `SILENCE_SECONDS`, and it may.

        The pieces are awaited by the caller's own task all the while: only sending is shared.
        """
        watching = asyncio.create_task(self._watch())
        try:
            async with self._limit:
                yield
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        """Let the limit expire where the client takes nothing, or has gone.

        It looks now and then: a time limit for each piece costs as much as its sending.
        """
        with suppress(OSError):
            while True:
                limit = SLOW_SECONDS if self._waiting else SILENCE_SECONDS
                if (left := self._sent + limit - self._loop.time()) > 0:
                    await asyncio.sleep(left)
                elif self._waiting:
                    break
                elif self._head()[1]:
                    async with asyncio.timeout(SLOW_SECONDS):
                        await self.send(comment("keep-alive"))
                else:
                    await asyncio.sleep(SILENCE_SECONDS)
        self._limit.reschedule(self._loop.time())


# --- Pages of other origins


def guard(app: FastAPI, origins: Collection[str]) -> None:
    """Let pages of `origins` use the application ("*": of all), and refuse those of others."""
    app.add_middleware(_OwnOrigin, origins=frozenset(origins))
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=list(SHOWN),
        )


class _OwnOrigin:
    """Refuses requests that a page of another origin makes a browser send, but for reading.

    Browsers send such a request without asking first where its media type is text; programs that
    are no browsers send no `Origin`.
    """

    def __init__(self, app: ASGIApp, origins: frozenset[str]) -> None:
        self._app, self._origins = app, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in _READS and self._foreign(scope):
            detail = "pages of this origin may not use this server: see [server] origins"
            await problem(403, "foreign_origin", detail)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _foreign(self, scope: Scope) -> bool:
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if origin is None or {origin, "*"} & self._origins:
            return False
        return origin.partition("://")[2] != headers.get("host")
