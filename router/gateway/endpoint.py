"""The gateway's endpoints, as plain ASGI on the model port."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from contextlib import aclosing
from dataclasses import dataclass
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.routing import Route

from contract.errors import CutoverError
from contract.operations import MODEL_STREAM
from router.gateway.answers import DONE, WholeAnswer, Writer, frame_event
from router.gateway.correlation import NOT_HERE, calling_session, is_here
from router.gateway.requests import (
    ILLEGIBLE,
    CompletionRequest,
    GatewayRefused,
    NoObject,
    call_key,
    read_request,
    refusal_of,
)
from router.http.disconnect import SlowClient, TimedSend, abort_connection
from router.problems import Problem
from router.stack import GATEWAY_SITE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine

    from starlette.types import Receive, Scope, Send

    from contract.model import Chunk, PassedCall
    from effects.model import ModelRegistry, RescuingModel
    from router.gateway.correlation import WorkerPeers
    from router.http.body import BodyMemory, Reservation
    from router.router import Router

log = logging.getLogger(__name__)

_JSON: Final = (b"content-type", b"application/json")
_STREAM: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # nginx and others buffer streams otherwise.
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True, slots=True)
class Gateway:
    """OpenAI's API on the model port; with a key, callers must show it."""

    router: Router
    model: RescuingModel
    registry: ModelRegistry
    key: bytes
    max_body_bytes: int
    peers: WorkerPeers | None = None

    def routes(self) -> list[Route]:
        """Return the routes, each also below the address of an exchange."""
        return [
            route
            for below in ("", "/exchanges/{exchange}")
            for route in (
                Route(f"{below}/v1/chat/completions", Completions(self), methods=["POST"]),
                Route(f"{below}/v1/models", Models(self), methods=["GET"]),
            )
        ]

    def admit(self, scope: Scope) -> None:
        """Check a caller's key; raises `GatewayRefused` 401."""
        if not self.key:
            return
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        kind, _, key = header.partition(b" ")
        if kind.lower() != b"bearer" or not compare_digest(key.strip(), self.key):
            raise GatewayRefused(
                401, "invalid_api_key", "the gateway's key is required as bearer token"
            )

    def is_elsewhere(self, scope: Scope) -> bool:
        """Whether a call's exchange is not open here, and may be in another worker of this host."""
        if self.peers is None or not self.peers.candidates(scope):
            return False
        return not is_here(self.router, scope["headers"], scope["path_params"].get("exchange"))

    async def ask(self, scope: Scope, call: PassedCall) -> AsyncGenerator[Chunk, None]:
        """Call the model, or play its answer to the same call in this exchange.

        Raises `GatewayRefused`.
        """
        path_id = scope["path_params"].get("exchange")
        from_peer = self.peers is not None and scope.get("client") is None
        if from_peer and not is_here(self.router, scope["headers"], path_id):
            raise GatewayRefused(NOT_HERE, "not_here", "no such exchange is open in this worker")
        run = calling_session(self.router, scope["headers"], path_id)
        if run is None:
            return self.model.stream(GATEWAY_SITE, call)
        try:
            args = await call_key(call)
        except ILLEGIBLE as error:
            raise NoObject from error
        return run.stream(MODEL_STREAM, GATEWAY_SITE, call, args)


class Models:
    """Lists the registered models by our own ids."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            self._gateway.admit(scope)
        except GatewayRefused as error:
            await _refuse(send, error)
            return
        listed = [
            {"id": name, "object": "model", "created": 0, "owned_by": entry.provider.name}
            for name, entry in self._gateway.registry.entries.items()
        ]
        await _send(send, 200, [_JSON], msgspec.json.encode({"object": "list", "data": listed}))


class Completions:
    """Answers chat completions; a disconnect cancels the model call."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        memory: BodyMemory = scope["app"].state.body_memory
        with memory.reservation() as room:
            await self._complete(scope, receive, send, room)

    async def _complete(
        self, scope: Scope, receive: Receive, send: Send, room: Reservation
    ) -> None:
        try:
            self._gateway.admit(scope)
            body = await room.read(scope, receive, self._gateway.max_body_bytes)
            request = read_request(body)
            if self._gateway.is_elsewhere(scope):
                await self._within(receive, self._forward(scope, body, request, send))
                return
            chunks = await self._gateway.ask(scope, request.call)
        except Problem as problem:
            await _refuse(send, _shed(problem))
            return
        except GatewayRefused as error:
            await _refuse(send, error)
            return
        await self._within(receive, self._respond(chunks, request, scope, send))

    async def _forward(
        self, scope: Scope, body: bytes, request: CompletionRequest, send: Send
    ) -> None:
        """Let the worker of the exchange answer; without one, answer here."""
        peers = self._gateway.peers
        if peers is not None and await peers.answer(scope, body, send):
            return
        try:
            chunks = await self._gateway.ask(scope, request.call)
        except GatewayRefused as error:
            await _refuse(send, error)
            return
        await self._respond(chunks, request, scope, send)

    async def _respond(
        self,
        chunks: AsyncGenerator[Chunk, None],
        request: CompletionRequest,
        scope: Scope,
        send: Send,
    ) -> None:
        sending = TimedSend(send, self._gateway.router.settings().limits.send_seconds)
        await _answer_in_time(chunks, request, sending, scope)

    async def _within(self, receive: Receive, doing: Coroutine[Any, Any, None]) -> None:
        """Run `doing` until it ends or the caller disconnects."""
        loop = asyncio.get_running_loop()
        work = loop.create_task(doing, name="gateway")
        disconnect = loop.create_task(_disconnected(receive), name="gateway watch")
        try:
            await asyncio.wait({work, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            disconnect.cancel()
            work.cancel()
            await asyncio.wait({work, disconnect})
        if not work.cancelled():
            work.result()


async def _answer_in_time(
    chunks: AsyncGenerator[Chunk, None],
    request: CompletionRequest,
    sending: TimedSend,
    scope: Scope,
) -> None:
    """Answer; abort for a client that reads nothing for too long, and cancel the model call."""
    try:
        async with sending:
            await _answer(chunks, request, sending)
    except SlowClient as unread:
        log.warning("gateway call aborted: %s", unread)
        abort_connection(scope)


async def _answer(
    chunks: AsyncGenerator[Chunk, None], request: CompletionRequest, send: Send
) -> None:
    """Send an answer; its head waits for the first chunk, so that a fault gets its own status."""
    answer_id, created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())
    # A whole answer always holds the usage.
    writer = Writer(
        answer_id, created, request.call.model_id, usage=request.usage or not request.stream
    )
    began = False
    try:
        async with aclosing(chunks):
            if not request.stream:
                await _send(send, 200, [_JSON], await _whole(chunks, writer))
                return
            async for chunk in chunks:
                if not began:
                    await send({"type": "http.response.start", "status": 200, "headers": _STREAM})
                    began = True
                if data := b"".join(map(frame_event, writer.write(chunk))):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
    except CutoverError as error:
        failed = refusal_of(error)
        if not began:
            await _refuse(send, failed)
            return
        # No [DONE]: a client that ignores errors inside a stream sees that it is cut.
        await send({"type": "http.response.body", "body": frame_event(failed.body())})
        return
    await send({"type": "http.response.body", "body": DONE})


async def _whole(chunks: AsyncGenerator[Chunk, None], writer: Writer) -> bytes:
    whole = WholeAnswer()
    async for chunk in chunks:
        for data in writer.write(chunk):
            whole.take(data)
    return whole.body()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _shed(problem: Problem) -> GatewayRefused:
    """Return a problem of the router in OpenAI's format."""
    error = GatewayRefused(
        problem.status, problem.code, problem.detail, retry_after=problem.retry_after or None
    )
    error.again = problem.retry_after > 0
    return error


async def _refuse(send: Send, error: GatewayRefused) -> None:
    await _send(send, error.status, error.headers(), error.body())


async def _send(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    head = {"type": "http.response.start", "status": status, "headers": [*headers, length]}
    await send(head)
    await send({"type": "http.response.body", "body": body})
