"""The Memory service: conversations over HTTP, as `HttpConversations` asks for them.

An ASGI application over any store of conversations: the reference for a service of one's own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from contract.errors import EffectFailed
from contract.stores import FoundTurns, Turn

if TYPE_CHECKING:
    from starlette.requests import Request

    from contract.ports import Conversations

LARGEST_BODY = 1_048_576
LONGEST_HISTORY = 1_000
_COUNT = re.compile("[0-9]{1,9}")

_turn = msgspec.json.Decoder(Turn)


def conversation_service(store: Conversations) -> Starlette:
    """Serve a store; whoever made the store closes it."""
    service = _Service(store)
    # `path` lets an id hold a slash: servers decode the percent signs before routing.
    return Starlette(
        routes=[
            Route("/messages/{message_id:path}", service.find, methods=["GET"]),
            Route("/messages/{message_id:path}", service.put, methods=["PUT"]),
            Route("/chats/{chat_id:path}/messages", service.history, methods=["GET"]),
        ],
        exception_handlers={EffectFailed: _failed},
    )


class _Service:
    def __init__(self, store: Conversations) -> None:
        self._store = store

    async def find(self, request: Request) -> Response:
        """Answer `GET /messages/{id}`."""
        turn = await self._store.find("service", request.path_params["message_id"])
        return _problem(404, "unknown_message") if turn is None else _json(turn)

    async def put(self, request: Request) -> Response:
        """Answer `PUT /messages/{id}`."""
        body = await _body(request)
        if body is None:
            return _problem(413, "too_large")
        try:
            turn = _turn.decode(body)
        except (msgspec.MsgspecError, UnicodeError):
            return _problem(422, "bad_turn")
        if turn.message_id != request.path_params["message_id"]:
            return _problem(422, "id_differs_from_path")
        stored = await self._store.put("service", turn)
        return Response(status_code=204) if stored else _problem(409, "id_taken")

    async def history(self, request: Request) -> Response:
        """Answer `GET /chats/{chat}/messages?before=&limit=`."""
        query = request.query_params
        limit = query.get("limit", "20")
        if not _COUNT.fullmatch(limit):
            return _problem(422, "bad_limit")
        turns = await self._store.history(
            "service",
            request.path_params["chat_id"],
            before=query.get("before", ""),
            limit=min(int(limit), LONGEST_HISTORY),
        )
        return _json(FoundTurns(turns))


async def _body(request: Request) -> bytes | None:
    """Read a body, or give up where it is too large."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_BODY:
            return None
    return bytes(body)


async def _failed(_: Request, failure: Exception) -> Response:
    retryable = isinstance(failure, EffectFailed) and failure.fault.retryable
    return _problem(503, "store_unavailable") if retryable else _problem(500, "store_failed")


def _json(value: Turn | FoundTurns) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _problem(status: int, code: str) -> Response:
    body = msgspec.json.encode({"status": status, "code": code})
    return Response(body, status, media_type="application/problem+json")
