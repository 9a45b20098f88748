"""The gateway's endpoints: OpenAI's API on the model port."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
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
from router.gateway.correlation import calling_session
from router.gateway.entrance import Entrance, refuse
from router.gateway.openapi import gateway_document
from router.gateway.refusals import GatewayRefused, refusal_of
from router.gateway.requests import CompletionRequest, call_key, read_request
from router.http.connection import SlowClient, abort_connection, timed_send
from router.http.endpoints import STREAM_HEADERS, send_whole

log = logging.getLogger(__name__)

_JSON: Final = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class Gateway:
    """OpenAI's API on the model port."""

    entrance: Entrance
    model: RescuingModel
    registry: ModelRegistry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a chat completion; a disconnect cancels the model call."""
        await self.entrance.serve(scope, receive, send, self._answer)

    async def models(self, request: Request) -> Response:
        """List the registered models by our own ids."""
        try:
            self.entrance.admit(request.scope["headers"])
        except GatewayRefused as error:
            headers = {name.decode(): value.decode() for name, value in error.headers()}
            return Response(error.body(), error.status, headers)
        listed = [
            {"id": name, "object": "model", "created": 0, "owned_by": entry.provider.name}
            for name, entry in self.registry.entries.items()
        ]
        page = msgspec.json.encode({"object": "list", "data": listed})
        return Response(page, media_type="application/json")

    async def _answer(self, scope: Scope, body: bytes, send: Send) -> None:
        request = read_request(body)
        chunks = await self._ask(scope, request.call)
        seconds = self.entrance.exchanges.settings().limits.send_seconds
        try:
            async with timed_send(send, seconds) as timed:
                await _send_answer(chunks, request, timed)
        except SlowClient as unread:
            log.warning("gateway call aborted: %s", unread)
            abort_connection(scope)

    async def _ask(self, scope: Scope, call: PassedCall) -> AsyncGenerator[Chunk, None]:
        """Call the model, or play its answer to the same call in this exchange.

        Raises `GatewayRefused`.
        """
        exchanges = self.entrance.exchanges
        session = calling_session(exchanges, scope)
        if session is None:
            self.entrance.admit_outside()
            return self.model.stream(GATEWAY_SITE, call)
        normal = normal_args if exchanges.settings().gateway.normalise else None
        return session.stream(MODEL_STREAM, GATEWAY_SITE, call, await call_key(call), normal)


def add_gateway(app: FastAPI, gateway: Gateway) -> None:
    """Mount the gateway on an application, also below the address of an exchange."""
    for below in ("", "/exchanges/{exchange}"):
        app.router.routes += [
            Route(f"{below}/v1/chat/completions", gateway, methods=["POST"]),
            Route(f"{below}/v1/models", gateway.models, methods=["GET"]),
        ]
    deep_dict_update(app.state.document, gateway_document(with_key=bool(gateway.entrance.key)))


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
            await refuse(send, failed)
            return
        # No [DONE]: a client that ignores errors inside a stream sees that it is cut.
        await send({"type": "http.response.body", "body": frame_event(failed.body())})
        return
    if writer.empty:
        await refuse(send, refusal_of(EffectFailed(Fault("model_truncated"))))
    elif request.stream:
        await send({"type": "http.response.body", "body": DONE})
    else:
        await send_whole(send, 200, (_JSON,), whole.body())
