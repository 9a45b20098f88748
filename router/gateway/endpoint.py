"""The gateway's endpoints: plain ASGI on the model port."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from contextlib import aclosing
from dataclasses import dataclass
from hmac import compare_digest
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.routing import Route

from contract.errors import CutoverError
from contract.operations import MODEL_STREAM
from router.gateway.correlating import SITE, asking
from router.gateway.refusals import GatewayRefused, refused
from router.gateway.request import Asked, read
from router.gateway.whole import WholeAnswer
from router.gateway.writing import DONE, Writer, event
from router.http import drop
from router.problems import Problem
from router.sending import Deadline, Unread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import Receive, Scope, Send

    from contract.model import Chunk, PassedCall
    from effects.model import ModelRegistry, RescuingModel
    from router.bodies import Room
    from router.dispatch import Router

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

    def ask(self, scope: Scope, call: PassedCall) -> AsyncGenerator[Chunk, None]:
        """Ask the model, or play what was answered to the same question in this exchange."""
        run = asking(self.router, scope["headers"], scope["path_params"].get("exchange"))
        if run is None:
            return self.model.stream(SITE, call)
        return run.stream(MODEL_STREAM, SITE, call)


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
            asked = read(await room.read(scope, receive, self._gateway.max_body_bytes))
            chunks = self._gateway.ask(scope, asked.call)
        except Problem as problem:
            await _refuse(send, GatewayRefused(problem.status, problem.code, problem.detail))
            return
        except GatewayRefused as error:
            await _refuse(send, error)
            return
        loop = asyncio.get_running_loop()
        sending = Deadline(send, self._gateway.router.parts.settings().limits.send_seconds)
        work = loop.create_task(_answer_in_time(chunks, asked, sending, scope), name="gateway")
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
        async with sending.within():
            await _answer(chunks, asked, sending)
    except Unread as unread:
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


async def _refuse(send: Send, error: GatewayRefused) -> None:
    await _send(send, error.status, error.headers(), error.body())


async def _send(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    head = {"type": "http.response.start", "status": status, "headers": [*headers, length]}
    await send(head)
    await send({"type": "http.response.body", "body": body})
