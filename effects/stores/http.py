"""Conversations stored by another service, and a reference of such a service.

The protocol is in docs/memory-service.md. A message that is not stored comes after all that are:
some flows ask for the history before they store a turn. A service might answer "none" to that, or
compare ids, so it is asked for the latest turns, without `before`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from secrets import compare_digest
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from yarl import URL

from contract.errors import EffectFailed, Fault
from contract.ports import Conversations
from contract.stores import FoundTurns, Turn, require_storable
from effects.circuit_breaker import OutageGuard
from effects.stores.conversations import ConversationStore, FlowView, check_turn
from effects.stores.tables import CALL_SECONDS

_Decoded = TypeVar("_Decoded", Turn, FoundTurns)

CONNECT_SECONDS = 2.0
"""Of the seconds of a call, the most that connecting may take."""
_UNAVAILABLE: Final = "store_unavailable"
NO_MESSAGE: Final = "cutover.no-message"
"""An id that no message has."""
_STORED = frozenset({HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT})
_STORED_IDS: Final = 4_096
"""Ids of messages that are known to be stored: those of the exchanges that are open, and more."""
_LATER = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})

log = logging.getLogger(__name__)

_turn = msgspec.json.Decoder(Turn)
_turns = msgspec.json.Decoder(FoundTurns)


class HttpConversations(FlowView):
    """Turns in a service at `base_url`; made by `HttpConversations.open(base_url)`."""

    def __init__(self, base_url: str, session: aiohttp.ClientSession) -> None:
        self._base = base_url.rstrip("/")
        self._session = session
        quiet = session.timeout.total or 0.0
        self._outage = OutageGuard("conversations", self._probe, quiet=quiet)
        self._outage.answered()  # nothing says otherwise yet
        self._stored: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._stores_data = asyncio.Event()  # one for the views of all flows

    @property
    def fault(self) -> str | None:
        """Why the service is not called now; None while it answers."""
        return self._outage.fault

    @classmethod
    @asynccontextmanager
    async def open(
        cls, base_url: str, *, limit: float | None = None, token: str = ""
    ) -> AsyncIterator[HttpConversations]:
        """Connect to the service; `token` is a bearer token.

        `limit` is in seconds per request, `CALL_SECONDS` if None.
        """
        seconds = CALL_SECONDS if limit is None else limit
        timeout = aiohttp.ClientTimeout(total=seconds, connect=min(seconds, CONNECT_SECONDS))
        # Neither cookies nor redirects to elsewhere belong to the protocol.
        async with aiohttp.ClientSession(
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"authorization": f"Bearer {token}"} if token else None,
        ) as session:
            conversations = cls(base_url, session)
            try:
                yield conversations
            finally:
                await conversations.aclose()

    async def find(self, site: str, message_id: str) -> Turn | None:
        """Look a turn up by its id."""
        require_storable("store_failed", message_id)
        path = f"/messages/{_segment(message_id)}{self._query()}"
        status, body = await self._call("GET", path)
        if status == HTTPStatus.NOT_FOUND:
            return None
        turn = _decode(_turn, _expect(status, body))
        self._note_stored(message_id)
        return turn

    async def put(self, site: str, turn: Turn) -> bool:
        """Store a turn; an equal one again is fine, False when the id belongs to another."""
        check_turn(turn)
        path = f"/messages/{_segment(turn.message_id)}{self._query()}"
        status, body = await self._call("PUT", path, msgspec.json.encode(turn))
        if status != HTTPStatus.CONFLICT:
            _expect(status, body)
            if turn.data is not None and not self._stores_data.is_set():
                await self._check_data(site, turn)
        self._note_stored(turn.message_id)
        return status != HTTPStatus.CONFLICT

    async def _check_data(self, site: str, turn: Turn) -> None:
        """Raise `EffectFailed` where the service has lost the data of a turn it stored.

        A service of the protocol's first version knows no data. The first data costs a request.
        """
        found = await self.find(site, turn.message_id)
        if found is None or found.data is None:
            log.error(
                "the conversation service at %s does not store the data of a turn: it must speak "
                "version 2 of the protocol (docs/memory-service.md)",
                self._base,
            )
            raise EffectFailed(Fault("store_failed", data={"reason": "data_lost"}))
        self._stores_data.set()

    async def history(
        self, site: str, chat_id: str, *, before: str, limit: int
    ) -> tuple[Turn, ...]:
        """Read up to `limit` turns stored before a message, oldest first."""
        require_storable("store_failed", chat_id, before)
        if before and (self.flow, before) not in self._stored:
            latest = await self._latest_unless_stored(site, chat_id, before, limit)
            if latest is not None:
                return latest
        turns = await self._read(chat_id, before, limit)
        if not turns and before and limit > 0:
            await self._check_unknown(site, chat_id, before)
        return turns

    async def _latest_unless_stored(
        self, site: str, chat_id: str, message_id: str, limit: int
    ) -> tuple[Turn, ...] | None:
        """Return the latest turns of a chat, None where the message is stored.

        Both are asked at once: a turn waits no longer than for one request.
        """
        try:
            async with asyncio.TaskGroup() as both:
                stored = both.create_task(self.find(site, message_id))
                latest = both.create_task(self._read(chat_id, "", limit))
        except* EffectFailed as failed:
            raise _first(failed) from failed
        return latest.result() if stored.result() is None else None

    async def _read(self, chat_id: str, before: str, limit: int) -> tuple[Turn, ...]:
        """Read turns before a stored message, or the latest ones."""
        named: dict[str, object] = {"before": before} if before else {}
        path = f"/chats/{_segment(chat_id)}/messages{self._query(**named, limit=max(limit, 0))}"
        return _decode(_turns, _expect(*await self._call("GET", path))).turns

    def _note_stored(self, message_id: str) -> None:
        self._stored[self.flow, message_id] = None
        if len(self._stored) > _STORED_IDS:
            self._stored.popitem(last=False)

    def _query(self, **values: object) -> str:
        named = values | ({"flow": self.flow} if self.flow else {})
        return f"?{urlencode(named, quote_via=quote)}" if named else ""

    async def _check_unknown(self, site: str, chat_id: str, before: str) -> None:
        """Raise `EffectFailed` where a chat has turns, and none before a message it has lost.

        It costs the first message of each chat a request.
        """
        if not await self._read(chat_id, "", 1):
            return
        if await self.find(site, before) is None:
            log.error(
                "the conversation service at %s has turns of a chat, and answers none before a "
                "message that it does not know: it must answer with the latest",
                self._base,
            )
            raise EffectFailed(Fault("store_failed", data={"reason": "unknown_before"}))

    async def aclose(self) -> None:
        """Close the connections; idempotent."""
        await self._outage.aclose()
        await self._session.close()

    async def _call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        if self._outage.fault is not None:
            raise EffectFailed(Fault(_UNAVAILABLE, retryable=True))
        return await self._send(method, path, body)

    async def _probe(self) -> None:
        await self._send("GET", f"/messages/{NO_MESSAGE}")

    async def _send(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        try:
            async with self._session.request(
                method,
                URL(self._base + path, encoded=True),
                data=body,
                headers={"content-type": "application/json"} if body is not None else None,
                allow_redirects=False,
            ) as response:
                found = response.status, await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError, RuntimeError) as failure:
            # RuntimeError is what a closed session raises.
            self._outage.silent(_UNAVAILABLE)
            raise EffectFailed(Fault(_UNAVAILABLE, retryable=True)) from failure
        self._outage.answered()
        return found


def _first(failed: BaseExceptionGroup[EffectFailed]) -> EffectFailed:
    first = failed.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _expect(status: int, body: bytes) -> bytes:
    """Return the body of a good answer; any other becomes a fault with its status."""
    if status in _STORED:
        return body
    data: dict[str, str | int | float | bool | None] = {"status": status}
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _LATER:
        raise EffectFailed(Fault(_UNAVAILABLE, retryable=True, data=data))
    raise EffectFailed(Fault("store_failed", data=data))


def _decode(decoder: msgspec.json.Decoder[_Decoded], body: bytes) -> _Decoded:
    """Read a good answer's body; raises the fault of a service that breaks its promise."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeError) as failure:
        raise EffectFailed(Fault("store_failed", data={"reason": "answer"})) from failure


def _segment(identifier: str) -> str:
    """Encode an id as one segment of a path; `.` and `..` would be taken for steps."""
    if identifier in {".", ".."}:
        return identifier.replace(".", "%2E")
    return quote(identifier, safe="")


LARGEST_BODY = 1_048_576
LONGEST_HISTORY = 1_000
_COUNT = re.compile("[0-9]{1,9}")


def conversation_service(store: ConversationStore, token: str = "") -> Starlette:
    """Serve a store, to callers with the bearer token if one is given; the caller closes it."""

    def conversations(request: Request) -> Conversations:
        sent = request.headers.get("authorization", "")
        if token and not compare_digest(sent.encode(), f"Bearer {token}".encode()):
            raise HTTPException(HTTPStatus.UNAUTHORIZED)
        return store.of(request.query_params.get("flow", ""))

    async def find(request: Request) -> Response:
        turn = await conversations(request).find("service", request.path_params["message_id"])
        return _problem(404, "unknown_message") if turn is None else _json(turn)

    async def put(request: Request) -> Response:
        body = await _body(request)
        if body is None:
            return _problem(413, "too_large")
        try:
            turn = _turn.decode(body)
        except (msgspec.MsgspecError, UnicodeError):
            return _problem(422, "bad_turn")
        if turn.message_id != request.path_params["message_id"]:
            return _problem(422, "id_differs_from_path")
        stored = await conversations(request).put("service", turn)
        return Response(status_code=204) if stored else _problem(409, "id_taken")

    async def history(request: Request) -> Response:
        query = request.query_params
        limit = query.get("limit", "20")
        if not _COUNT.fullmatch(limit):
            return _problem(422, "bad_limit")
        turns = await conversations(request).history(
            "service",
            request.path_params["chat_id"],
            before=query.get("before", ""),
            limit=min(int(limit), LONGEST_HISTORY),
        )
        return _json(FoundTurns(turns))

    # `path` lets an id hold a slash: servers decode the percent signs before routing.
    return Starlette(
        routes=[
            Route("/messages/{message_id:path}", find, methods=["GET"]),
            Route("/messages/{message_id:path}", put, methods=["PUT"]),
            Route("/chats/{chat_id:path}/messages", history, methods=["GET"]),
        ],
        exception_handlers={EffectFailed: _failed},
    )


async def _body(request: Request) -> bytes | None:
    """Read a body; None where it is too large."""
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
