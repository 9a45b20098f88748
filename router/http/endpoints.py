"""A flow's endpoint: plain ASGI, because a framework's layers cost more than the whole route."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from contract.errors import EffectFailed, Refused
from effects.tasks import EXCHANGE
from router.http.disconnect import PASSING, Deadline, Parting, SlowClient, drop, extension
from router.openapi import answer, body_of, identifier, page_of
from router.problems import Problem
from router.remote import RemoteRefused
from router.routing.qa_header import HEADER as QA_HEADER
from router.serving.completion import GRACE
from router.serving.failure import Unserved
from router.serving.run import Incoming

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request
    from starlette.types import Message, Receive, Scope, Send

    from contract.flow import AnswerEndpoint, ContinueEndpoint, FlowSpec, StoreEndpoint
    from router.context import ExchangeContext
    from router.http.body import Room
    from router.router import Router
    from router.serving.stream import Passing


log = logging.getLogger(__name__)

_QA = QA_HEADER.encode()
_NOT_KEPT = (b"cache-control", b"no-store")
_HEAD = {
    "sse": ((b"content-type", b"text/event-stream; charset=utf-8"), _NOT_KEPT),
    "ndjson": ((b"content-type", b"application/x-ndjson"), _NOT_KEPT),
}
# Proxies such as nginx hold streams back unless told not to.
_ALWAYS = ((b"x-accel-buffering", b"no"),)

HeaderList = list[tuple[bytes, bytes]]


class FlowEndpoint:
    """Serves one flow over HTTP, at its own path or a further one."""

    def __init__(self, router: Router, spec: FlowSpec, path: str = "") -> None:
        self._router = router
        self._spec = spec
        self._path = "" if path == spec.path else path
        self._longest = spec.body_limits.get(path or spec.path, 0)
        self._decoder = msgspec.json.Decoder(spec.requests[path or spec.path])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        with self._router.bodies.room() as room:
            try:
                ticket = await self._take(scope, receive, room)
            except Problem as problem:
                self._router.observers.turned_away(self._spec.name, problem.status, problem.code)
                await send_problem(send, problem)
                return
            await self._answer(ticket, scope, receive, send)

    async def _answer(
        self, ticket: ExchangeContext, scope: Scope, receive: Receive, send: Send
    ) -> None:
        EXCHANGE.set(ticket.exchange)
        parting = Parting(scope, receive, ticket.serving.leave)
        sending = Deadline(send, self._router.parts.settings().limits.send_seconds)
        try:
            async with sending:
                await self._serve(ticket, sending, extension(scope, PASSING))
                if ticket.serving.cut:
                    await _abort(scope, parting)
        except SlowClient as unread:
            log.warning("%s exchange %s is given up: %s", self._spec.name, ticket.exchange, unread)
            ticket.serving.leave(unread=True)
            await _abort(scope, parting)
        except BaseException:
            # Also when the server gives this task up: the exchange must not outlive its reader.
            ticket.serving.leave()
            raise
        finally:
            parting.end()
            self._router.conclude(ticket)

    async def _take(self, scope: Scope, receive: Receive, room: Room) -> ExchangeContext:
        if self._router.draining:
            raise Problem(503, "stopping", "this router is shutting down", retry_after=1)
        self._router.admission.check(self._spec.name)
        server = self._router.parts.settings().server
        body = await room.read(scope, receive, max(server.max_body_bytes, self._longest))
        incoming = Incoming(
            body,
            tuple(scope["headers"]),
            scope["query_string"],
            peer=scope["client"][0] if scope.get("client") else "",
            scheme=scope.get("scheme", "http"),
            proxies=server.trusted_proxies,
        )
        return await self._begin(body, _qa_header(scope), incoming)

    async def _begin(
        self, body: bytes, qa_header: str | None, incoming: Incoming
    ) -> ExchangeContext:
        asked = decode(self._decoder, body)
        return await self._router.begin(self._spec, asked, qa_header, incoming, path=self._path)

    async def _serve(self, ticket: ExchangeContext, send: Send, passing: Passing | None) -> None:
        serving = ticket.serving
        self._router.opened(ticket)
        try:
            await serving.open()
        except Refused as refused:
            await serving.settle()
            await _send_refusal(send, refused, _proof(ticket))
            return
        except Unserved as unserved:
            if not serving.left:
                problem = Problem(unserved.status, unserved.code)
                await serving.settle()
                await send_problem(send, problem, _proof(ticket))
            return
        await self._router.answered(ticket)
        begun, last = False, b""
        async for piece in serving.pieces(passing):
            body = b"".join(piece)
            if serving.over:
                last = body
                break
            if not begun:
                begun = True
                await send(_start(ticket))
            await send({"type": "http.response.body", "body": body, "more_body": True})
            if serving.left:
                return
        await serving.settle()
        if not begun:
            await send(_start(ticket))  # the whole answer was there at once: it leaves at once
        if not serving.cut:
            await send({"type": "http.response.body", "body": last})


class ContinuingEndpoint(FlowEndpoint):
    """Goes on from a paused exchange, over HTTP."""

    def __init__(self, router: Router, spec: FlowSpec, continuing: ContinueEndpoint) -> None:
        super().__init__(router, spec)
        self._continuing = continuing
        self._decoder = msgspec.json.Decoder(continuing.request)

    async def _begin(
        self, body: bytes, qa_header: str | None, incoming: Incoming
    ) -> ExchangeContext:
        asked = decode(self._decoder, body)
        hitl_id, answer = self._continuing.hitl_id(asked), self._continuing.answer(asked)
        if answer is not None:
            await self._router.respond(self._spec, hitl_id, answer)
        return await self._router.resume(self._spec, hitl_id, qa_header, incoming)


async def _abort(scope: Scope, parting: Parting) -> None:
    """Drop the connection, where the server lets us, with all that waits in it.

    Closing it would wait for the client to take that. The server hears of it as of any client
    that leaves.
    """
    if drop(scope):
        await parting.noticed(GRACE)


def decode(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """Decode a body; raises `Problem` 400 or 422 that says what is wrong, and where."""
    if not body:
        raise Problem(400, "empty_body", "a JSON object is due")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Problem(422, "invalid_request", str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, "not_json", "the body is not JSON in UTF-8") from error
    except RecursionError as error:
        raise Problem(400, "too_deep", "the body is nested too deeply") from error


async def send_problem(send: Send, problem: Problem, headers: HeaderList | None = None) -> None:
    """Answer with a problem."""
    all_headers = [*problem.headers(), *(headers or ())]
    await _send_whole(send, problem.status, all_headers, problem.body())


async def _send_refusal(send: Send, refused: Refused, proof: HeaderList) -> None:
    """Answer as the stack does, or in our own words where it has none for clients."""
    if isinstance(refused, RemoteRefused):
        if refused.body is not None:
            headers = [*refused.headers, *proof]
            await _send_whole(send, refused.status, headers, refused.body)
            return
        proof = [*refused.headers, *proof]
    await send_problem(send, Problem(refused.status, refused.code, refused.detail), proof)


async def _send_whole(send: Send, status: int, headers: HeaderList, body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def _start(ticket: ExchangeContext) -> Message:
    said = ticket.serving.drive.headers
    named = {name for name, _ in said}
    framing = ticket.spec.dialect.framing
    headers = [
        *(header for header in _HEAD[framing] if header[0] not in named),
        *said,
        *_ALWAYS,
        *_proof(ticket),
    ]
    return {"type": "http.response.start", "status": 200, "headers": headers}


def _proof(ticket: ExchangeContext) -> HeaderList:
    """Say which exchange this is, who was assigned and who serves."""
    serving = ticket.serving
    served = f"{serving.served.name} {serving.served.fingerprint}"
    return [
        (b"x-cutover-exchange", ticket.exchange.encode()),
        (b"x-cutover-assigned", serving.plan.assigned.name.encode()),
        (b"x-cutover-served", served.encode()),
    ]


def _qa_header(scope: Scope) -> str | None:
    value = next((v for k, v in scope["headers"] if k == _QA), None)
    return None if value is None else value.decode("latin-1")


_JSON = "application/json"
_OF_ANSWERS = (400, 404, 408, 409, 410, 413, 422, 500, 503)
_OF_CALLS = (404, 409, 422, 500, 503)
_MOST_OF_AN_ARGUMENT = 128
"""Characters of an id in a path, as in a body."""
_ARGUMENT = re.compile(rf"[^\x00-\x1f]{{1,{_MOST_OF_AN_ARGUMENT}}}\Z")


class Answered(msgspec.Struct, frozen=True):
    """The answer is kept: the exchange can go on."""

    hitl_id: str
    status: str = "answered"


def routes(router: Router, spec: FlowSpec) -> Iterator[Route]:
    """Give the routes of a flow that are no streams."""
    if spec.answer_endpoint is not None:
        respond = _respond(router, spec, spec.answer_endpoint)
        yield Route(spec.answer_endpoint.path, respond, methods=["POST"])
    for call in spec.store_endpoints:
        # An id may hold a slash, which arrives as one however it was written.
        path = call.path.replace("}", ":path}")
        yield Route(path, _call(router, call), methods=[call.method])


def documents(spec: FlowSpec) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Describe them for the OpenAPI document: path, method, operation."""
    if spec.answer_endpoint is not None:
        path = spec.answer_endpoint.path
        yield (
            path,
            "post",
            _described(spec, path, "post", page_of(Answered), _OF_ANSWERS)
            | {"requestBody": body_of(spec.answer_endpoint.request)},
        )
    for call in spec.store_endpoints:
        method = call.method.lower()
        good = {"description": "Done."} if call.reply is None else page_of(call.reply)
        yield (
            call.path,
            method,
            _described(spec, call.path, method, good, _OF_CALLS)
            | {"parameters": [_parameter(name) for name in _names(call.path)]},
        )


def _respond(router: Router, spec: FlowSpec, responding: AnswerEndpoint) -> Any:
    decoder = msgspec.json.Decoder(responding.request)

    async def respond(request: Request) -> Response:
        """Keep the answer to a question."""
        limit = router.parts.settings().server.max_body_bytes
        body = await router.bodies.read(request.scope, request.receive, limit)
        asked = decode(decoder, body)
        hitl_id = responding.hitl_id(asked)
        await router.respond(spec, hitl_id, responding.answer(asked))
        return Response(msgspec.json.encode(Answered(hitl_id)), media_type=_JSON)

    return respond


def _call(router: Router, call: StoreEndpoint) -> Any:
    async def perform(request: Request) -> Response:
        """Ask the stores."""
        sessions = router.parts.sessions
        if sessions is None:
            raise Problem(503, "not_kept", "nothing is kept here")
        try:
            reply = await call.perform(sessions, _arguments(request))
        except Refused as refused:
            raise Problem(refused.status, refused.code, refused.detail) from refused
        except EffectFailed as failure:
            raise Problem(503, failure.fault.code, retry_after=1) from failure
        if reply is None:
            return Response(status_code=204)
        return Response(msgspec.json.encode(reply), media_type=_JSON)

    return perform


def _arguments(request: Request) -> dict[str, str]:
    given = {name: str(value) for name, value in request.path_params.items()}
    for name, value in given.items():
        if _ARGUMENT.match(value) is None:
            raise Problem(422, "invalid_request", f"{name} is no id")
    return given


def _names(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def _parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": _MOST_OF_AN_ARGUMENT}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _described(
    spec: FlowSpec, path: str, method: str, good: dict[str, Any], problems: tuple[int, ...]
) -> dict[str, Any]:
    status = "200" if "content" in good else "204"
    return {
        "summary": f"Flow {spec.name}",
        "operationId": identifier(spec, path, method),
        "responses": {status: good, **{str(one): answer(one) for one in problems}},
    }
