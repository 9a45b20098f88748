"""The gateway's endpoints: OpenAI's API on the model port."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final

import msgspec
from fastapi import FastAPI
from fastapi.utils import deep_dict_update
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from contract.errors import CutoverError, EffectFailed, Fault
from contract.model import GATEWAY_SITE, Chunk, PassedCall
from contract.normalisation import normal_args
from contract.operations import MODEL_STREAM
from effects.model import ModelRegistry, RescuingModel
from router.gateway.answers import DONE, WholeAnswer, Writer, frame_event
from router.gateway.correlation import calling_session, open_runs
from router.gateway.openapi import gateway_document
from router.gateway.peers import NOT_HERE, WorkerPeers
from router.gateway.refusals import GatewayRefused, refusal_of
from router.gateway.requests import CompletionRequest, call_key, read_request
from router.http.connection import (
    BodyMemory,
    DisconnectWatch,
    SlowClient,
    abort_connection,
    timed_send,
)
from router.http.endpoints import STREAM_HEADERS, send_whole
from router.problems import Problem
from router.router import Router
from router.stack import Headers, header_of

log = logging.getLogger(__name__)

_JSON: Final = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class Gateway:
    """OpenAI's API on the model port; with a key, callers must show it."""

    router: Router
    model: RescuingModel
    registry: ModelRegistry
    key: bytes
    max_body_bytes: int
    peers: WorkerPeers | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a chat completion; a disconnect cancels the model call."""
        memory: BodyMemory = scope["app"].state.body_memory
        body = b""
        try:
            self._admit(scope["headers"])
            body = await memory.read(scope, receive, self.max_body_bytes)
            request = read_request(body)
        except (Problem, GatewayRefused) as error:
            await _refuse(send, refusal_of(error))
        else:
            answering = self._answer(scope, body, request, send)
            work = asyncio.get_running_loop().create_task(answering, name="gateway")
            watch = DisconnectWatch(scope, receive, work.cancel)
            try:
                await asyncio.wait({work})
            finally:
                watch.stop()
                work.cancel()
                await asyncio.wait({work})
            if not work.cancelled():
                work.result()
        finally:
            memory.release(body)

    async def models(self, request: Request) -> Response:
        """List the registered models by our own ids."""
        try:
            self._admit(request.scope["headers"])
        except GatewayRefused as error:
            headers = {name.decode(): value.decode() for name, value in error.headers()}
            return Response(error.body(), error.status, headers)
        listed = [
            {"id": name, "object": "model", "created": 0, "owned_by": entry.provider.name}
            for name, entry in self.registry.entries.items()
        ]
        page = msgspec.json.encode({"object": "list", "data": listed})
        return Response(page, media_type="application/json")

    def _admit(self, headers: Headers) -> None:
        """Check a caller's key; raises `GatewayRefused` 401."""
        kind, _, key = header_of(headers, b"authorization").partition(b" ")
        shown = kind.lower() == b"bearer" and compare_digest(key.strip(), self.key)
        if self.key and not shown:
            raise GatewayRefused(
                401, "invalid_api_key", "the gateway's key is required as bearer token"
            )

    async def _answer(
        self, scope: Scope, body: bytes, request: CompletionRequest, send: Send
    ) -> None:
        """Answer a call, or let the worker of its exchange answer it."""
        seconds = self.router.settings().limits.send_seconds
        try:
            if self.peers is not None and open_runs(self.router, scope) is None:
                if scope.get("client") is None:  # another worker asks
                    why = "no such exchange is open in this worker"
                    await _refuse(send, GatewayRefused(NOT_HERE, "not_here", why))
                    return
                if await self.peers.answer(scope, body, send):
                    return
            chunks = await self._ask(scope, request.call)
            async with timed_send(send, seconds) as timed:
                await _send_answer(chunks, request, timed)
        except GatewayRefused as error:
            await _refuse(send, error)
        except SlowClient as unread:
            log.warning("gateway call aborted: %s", unread)
            abort_connection(scope)

    async def _ask(self, scope: Scope, call: PassedCall) -> AsyncGenerator[Chunk, None]:
        """Call the model, or play its answer to the same call in this exchange.

        Raises `GatewayRefused`.
        """
        session = calling_session(self.router, scope)
        if session is None:
            return self.model.stream(GATEWAY_SITE, call)
        normal = normal_args if self.router.settings().gateway.normalise else None
        return session.stream(MODEL_STREAM, GATEWAY_SITE, call, await call_key(call), normal)


def add_gateway(app: FastAPI, gateway: Gateway) -> None:
    """Mount the gateway on an application, also below the address of an exchange."""
    for below in ("", "/exchanges/{exchange}"):
        app.router.routes += [
            Route(f"{below}/v1/chat/completions", gateway, methods=["POST"]),
            Route(f"{below}/v1/models", gateway.models, methods=["GET"]),
        ]
    deep_dict_update(app.state.document, gateway_document(with_key=bool(gateway.key)))


async def _send_answer(
    chunks: AsyncGenerator[Chunk, None], request: CompletionRequest, send: Send
) -> None:
    """Send an answer; its head waits for the first chunk, so that a fault gets its own status."""
    answer_id, created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())
    # A whole answer always holds the usage.
    writer = Writer(
        answer_id, created, request.call.model_id, usage=request.usage or not request.stream
    )
    whole = WholeAnswer()
    response_started = False
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                events = writer.write(chunk)
                if not request.stream:
                    whole.take(events)
                    continue
                if not response_started:
                    headers = STREAM_HEADERS["sse"]
                    await send({"type": "http.response.start", "status": 200, "headers": headers})
                    response_started = True
                if data := b"".join(map(frame_event, events)):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
    except CutoverError as error:
        failed = refusal_of(error)
        if not response_started:
            await _refuse(send, failed)
            return
        # No [DONE]: a client that ignores errors inside a stream sees that it is cut.
        await send({"type": "http.response.body", "body": frame_event(failed.body())})
        return
    if writer.empty:
        await _refuse(send, refusal_of(EffectFailed(Fault("model_truncated"))))
    elif request.stream:
        await send({"type": "http.response.body", "body": DONE})
    else:
        await send_whole(send, 200, (_JSON,), whole.body())


async def _refuse(send: Send, error: GatewayRefused) -> None:
    await send_whole(send, error.status, error.headers(), error.body())
