"""The gateway's endpoints: plain ASGI on the model port."""

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
from router.gateway.correlating import SITE, asking, here
from router.gateway.keying import key_of
from router.gateway.neighbours import NOT_HERE
from router.gateway.refusals import GatewayRefused, refused
from router.gateway.request import ILLEGIBLE, Asked, NoObject, read
from router.gateway.whole import WholeAnswer
from router.gateway.writing import DONE, Writer, event
from router.http.disconnect import Deadline, SlowClient, drop
from router.problems import Problem

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine

    from starlette.types import Receive, Scope, Send

    from contract.model import Chunk, PassedCall
    from effects.model import ModelRegistry, RescuingModel
    from router.gateway.neighbours import Neighbours
    from router.http.body import Room
    from router.router import Router

log = logging.getLogger(__name__)

_JSON: Final = (b"content-type", b"application/json")
_STREAM: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # Proxies such as nginx hold streams back unless told not to.
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True, slots=True)
class Gateway:
    """OpenAI's wire on the model port; with a key, whoever asks must show it."""

    router: Router
    model: RescuingModel
    registry: ModelRegistry
    key: bytes
    max_body_bytes: int
    neighbours: Neighbours | None = None

    def routes(self) -> list[Route]:
        """Give the routes, each also below the address of an exchange."""
        return [
            route
            for below in ("", "/exchanges/{exchange}")
            for route in (
                Route(f"{below}/v1/chat/completions", Completions(self), methods=["POST"]),
                Route(f"{below}/v1/models", Models(self), methods=["GET"]),
            )
        ]

    def admit(self, scope: Scope) -> None:
        """Look at a caller's key; raises `GatewayRefused` 401."""
        if not self.key:
            return
        said = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        kind, _, key = said.partition(b" ")
        if kind.lower() != b"bearer" or not compare_digest(key.strip(), self.key):
            raise GatewayRefused(401, "invalid_api_key", "the gateway's key is due as bearer token")

    def elsewhere(self, scope: Scope) -> bool:
        """Whether a call is not known here, and another worker of this host may know it."""
        if self.neighbours is None or not self.neighbours.asked(scope):
            return False
        return not here(self.router, scope["headers"], scope["path_params"].get("exchange"))

    async def ask(self, scope: Scope, call: PassedCall) -> AsyncGenerator[Chunk, None]:
        """Ask the model, or play what was answered to the same question in this exchange.

        Raises `GatewayRefused`.
        """
        path_id = scope["path_params"].get("exchange")
        by_neighbour = self.neighbours is not None and scope.get("client") is None
        if by_neighbour and not here(self.router, scope["headers"], path_id):
            raise GatewayRefused(NOT_HERE, "not_here", "another worker's, or nobody's")
        run = asking(self.router, scope["headers"], path_id)
        if run is None:
            return self.model.stream(SITE, call)
        try:
            args = await key_of(call)
        except ILLEGIBLE as error:
            raise NoObject from error
        return run.stream(MODEL_STREAM, SITE, call, args)


class Models:
    """Lists the models that can be asked, by our own ids."""

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
    """Answers chat completions; when a caller goes, what was asked for it is dropped."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        with self._gateway.router.bodies.room() as room:
            await self._complete(scope, receive, send, room)

    async def _complete(self, scope: Scope, receive: Receive, send: Send, room: Room) -> None:
        try:
            self._gateway.admit(scope)
            body = await room.read(scope, receive, self._gateway.max_body_bytes)
            asked = read(body)
            if self._gateway.elsewhere(scope):
                await self._within(receive, self._passed_on(scope, body, asked, send))
                return
            chunks = await self._gateway.ask(scope, asked.call)
        except Problem as problem:
            await _refuse(send, _shed(problem))
            return
        except GatewayRefused as error:
            await _refuse(send, error)
            return
        await self._within(receive, self._answered(chunks, asked, scope, send))

    async def _passed_on(self, scope: Scope, body: bytes, asked: Asked, send: Send) -> None:
        """Let the worker answer whose exchange it is; where there is none, do it here."""
        neighbours = self._gateway.neighbours
        if neighbours is not None and await neighbours.answered(scope, body, send):
            return
        try:
            chunks = await self._gateway.ask(scope, asked.call)
        except GatewayRefused as error:
            await _refuse(send, error)
            return
        await self._answered(chunks, asked, scope, send)

    async def _answered(
        self, chunks: AsyncGenerator[Chunk, None], asked: Asked, scope: Scope, send: Send
    ) -> None:
        sending = Deadline(send, self._gateway.router.parts.settings().limits.send_seconds)
        await _answer_in_time(chunks, asked, sending, scope)

    async def _within(self, receive: Receive, doing: Coroutine[Any, Any, None]) -> None:
        """Do it for as long as the caller is there."""
        loop = asyncio.get_running_loop()
        work = loop.create_task(doing, name="gateway")
        gone = loop.create_task(_gone(receive), name="gateway watch")
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            work.cancel()
            await asyncio.wait({work, gone})
        if not work.cancelled():
            work.result()


async def _answer_in_time(
    chunks: AsyncGenerator[Chunk, None], asked: Asked, sending: Deadline, scope: Scope
) -> None:
    """Answer; a client that takes nothing for too long is given up, and the model with it."""
    try:
        async with sending:
            await _answer(chunks, asked, sending)
    except SlowClient as unread:
        log.warning("a call of the gateway is given up: %s", unread)
        drop(scope)


async def _answer(chunks: AsyncGenerator[Chunk, None], asked: Asked, send: Send) -> None:
    """Send an answer; its head waits for the first chunk, so that a fault has its status."""
    answer_id, created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())
    # An answer in one piece holds the usage without being asked.
    writer = Writer(answer_id, created, asked.call.model_id, usage=asked.usage or not asked.stream)
    began = False
    try:
        async with aclosing(chunks):
            if not asked.stream:
                await _send(send, 200, [_JSON], await _whole(chunks, writer))
                return
            async for chunk in chunks:
                if not began:
                    await send({"type": "http.response.start", "status": 200, "headers": _STREAM})
                    began = True
                if data := b"".join(map(event, writer.write(chunk))):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
    except CutoverError as error:
        failed = refused(error)
        if not began:
            await _refuse(send, failed)
            return
        # No [DONE]: a client that does not know errors inside a stream sees that it was cut.
        await send({"type": "http.response.body", "body": event(failed.body())})
        return
    await send({"type": "http.response.body", "body": DONE})


async def _whole(chunks: AsyncGenerator[Chunk, None], writer: Writer) -> bytes:
    whole = WholeAnswer()
    async for chunk in chunks:
        for data in writer.write(chunk):
            whole.take(data)
    return whole.body()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _shed(problem: Problem) -> GatewayRefused:
    """Tell what the router tells of any request, in the API's own words."""
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
