"""A flow's endpoint: plain ASGI, because a framework's layers cost more than the whole route."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from contract.errors import Refused
from effects.tasks import EXCHANGE
from router.closing import Unserved
from router.driving import Incoming
from router.extensions import PASSING, drop, extension
from router.parting import Parting
from router.problems import Problem
from router.qa_header import HEADER as QA_HEADER
from router.remote import RemoteRefused
from router.sending import Deadline, Unread
from router.settling import GRACE

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from contract.flow import ContinueEndpoint, FlowSpec
    from router.bodies import Room
    from router.dispatch import Router
    from router.pieces import Passing
    from router.ticket import Ticket

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
        self._longest = spec.bodies.get(path or spec.path, 0)
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

    async def _answer(self, ticket: Ticket, scope: Scope, receive: Receive, send: Send) -> None:
        EXCHANGE.set(ticket.exchange)
        parting = Parting(scope, receive, ticket.serving.leave)
        sending = Deadline(send, self._router.parts.settings().limits.send_seconds)
        try:
            async with sending:
                await self._serve(ticket, sending, extension(scope, PASSING))
                if ticket.serving.cut:
                    await _abort(scope, parting)
        except Unread as unread:
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

    async def _take(self, scope: Scope, receive: Receive, room: Room) -> Ticket:
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

    async def _begin(self, body: bytes, qa_header: str | None, incoming: Incoming) -> Ticket:
        asked = decode(self._decoder, body)
        return await self._router.begin(self._spec, asked, qa_header, incoming, path=self._path)

    async def _serve(self, ticket: Ticket, send: Send, passing: Passing | None) -> None:
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

    async def _begin(self, body: bytes, qa_header: str | None, incoming: Incoming) -> Ticket:
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


def _start(ticket: Ticket) -> Message:
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


def _proof(ticket: Ticket) -> HeaderList:
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
