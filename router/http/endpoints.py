"""The endpoints of a flow: its stream, its resumption, answers to questions, calls to the stores.

The stream is plain ASGI, because a framework's layers cost more than the whole route.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from contract.errors import EffectFailed, Refused
from contract.flow import AnswerEndpoint, ContinueEndpoint, FlowSpec, SessionStore, StoreEndpoint
from effects.tasks import EXCHANGE
from router.http.body import BodyMemory, Reservation
from router.http.disconnect import (
    WRITE_NOW,
    DisconnectWatch,
    SlowClient,
    TimedSend,
    abort_connection,
    extension,
)
from router.http.openapi import answer, body_of, identifier, page_of
from router.problems import Problem
from router.remote import RemoteRefused
from router.router import Router
from router.routing.qa_header import QA_HEADER
from router.serving.completion import GRACE_SECONDS
from router.serving.failure import NotServed
from router.serving.stream import ServedStream, WriteNow
from router.stack import Headers, IncomingRequest

log = logging.getLogger(__name__)

_QA = QA_HEADER.encode()
_NO_STORE = (b"cache-control", b"no-store")
_STREAM_HEADERS = {
    "sse": ((b"content-type", b"text/event-stream; charset=utf-8"), _NO_STORE),
    "ndjson": ((b"content-type", b"application/x-ndjson"), _NO_STORE),
}
# Proxies such as nginx buffer streams unless told not to.
_NO_BUFFERING = (b"x-accel-buffering", b"no")

_JSON = "application/json"
_ANSWER_PROBLEMS = (400, 404, 408, 409, 410, 413, 422, 500, 503)
_STORE_PROBLEMS = (404, 409, 422, 500, 503)
_ID_LENGTH = 128
_ID = re.compile(rf"[^\x00-\x1f]{{1,{_ID_LENGTH}}}\Z")


class FlowEndpoint:
    """Serves one flow over HTTP, at its own path or a further one."""

    def __init__(self, router: Router, memory: BodyMemory, spec: FlowSpec, path: str = "") -> None:
        self._router = router
        self._memory = memory
        self._spec = spec
        self._path = "" if path == spec.path else path
        self._longest = spec.body_limits.get(path or spec.path, 0)
        self._decoder = msgspec.json.Decoder(spec.requests[path or spec.path])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        with self._memory.reservation() as reservation:
            try:
                stream = await self._open(scope, receive, reservation)
            except Problem as problem:
                self._router.refused(self._spec.name, problem)
                await send_problem(send, problem)
                return
            await self._serve(stream, scope, receive, send)

    async def _open(self, scope: Scope, receive: Receive, reservation: Reservation) -> ServedStream:
        if self._router.draining:
            raise Problem(503, "stopping", "this router is shutting down", retry_after=1)
        self._router.admission.check_slot(self._spec.name)
        server = self._router.settings().server
        most = max(server.max_body_bytes, self._longest)
        incoming = IncomingRequest(
            await reservation.read(scope, receive, most),
            tuple(scope["headers"]),
            scope["query_string"],
            peer=scope["client"][0] if scope.get("client") else "",
            scheme=scope.get("scheme", "http"),
            proxies=server.trusted_proxies,
        )
        qa_header = next((v.decode("latin-1") for k, v in incoming.headers if k == _QA), None)
        return await self._begin(decode(self._decoder, incoming.body), qa_header, incoming)

    async def _begin(
        self, body: Any, qa_header: str | None, incoming: IncomingRequest
    ) -> ServedStream:
        return await self._router.open(self._spec, body, qa_header, incoming, path=self._path)

    async def _serve(
        self, stream: ServedStream, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send the stream, and close it when the client has it or has gone."""
        exchange = stream.plan.exchange
        EXCHANGE.set(exchange)
        watch = DisconnectWatch(scope, receive, stream.disconnect)
        sending = TimedSend(send, self._router.settings().limits.send_seconds)
        try:
            async with sending:
                await self._send(stream, sending, extension(scope, WRITE_NOW))
                if stream.truncated:
                    await _abort(scope, watch)
        except SlowClient as slow:
            log.warning("%s exchange %s is aborted: %s", self._spec.name, exchange, slow)
            stream.disconnect(slow=True)
            await _abort(scope, watch)
        except BaseException:
            # Also when the server cancels this task: the exchange must not outlive its reader.
            stream.disconnect()
            raise
        finally:
            watch.stop()
            self._router.close(stream)

    async def _send(self, stream: ServedStream, send: Send, write_now: WriteNow | None) -> None:
        try:
            await stream.open()
        except Refused as refused:
            await stream.close_in_grace()
            await _send_refusal(send, refused, _proof(stream))
            return
        except NotServed as error:
            if not stream.disconnected:
                await stream.close_in_grace()
                await send_problem(send, Problem(error.status, error.code), _proof(stream))
            return
        await self._router.answered(stream)
        response_started, last = False, b""
        async for piece in stream.pieces(write_now):
            body = b"".join(piece)
            if stream.ended:
                last = body
                break
            if not response_started:
                response_started = True
                await send(_response_start(stream))
            await send({"type": "http.response.body", "body": body, "more_body": True})
            if stream.disconnected:
                return
        await stream.close_in_grace()
        if not response_started:
            await send(_response_start(stream))  # the whole stream goes out at once
        if not stream.truncated:
            await send({"type": "http.response.body", "body": last})


class ResumeEndpoint(FlowEndpoint):
    """Resumes a paused exchange over HTTP."""

    def __init__(
        self, router: Router, memory: BodyMemory, spec: FlowSpec, continuing: ContinueEndpoint
    ) -> None:
        super().__init__(router, memory, spec)
        self._continuing = continuing
        self._decoder = msgspec.json.Decoder(continuing.request)

    async def _begin(
        self, body: Any, qa_header: str | None, incoming: IncomingRequest
    ) -> ServedStream:
        hitl_id, given = self._continuing.hitl_id(body), self._continuing.answer(body)
        if given is not None:
            await self._router.respond(self._spec, hitl_id, given)
        return await self._router.resume(self._spec, hitl_id, qa_header, incoming)


async def _abort(scope: Scope, watch: DisconnectWatch) -> None:
    """Drop the connection with all that waits in it: closing it would wait for the client."""
    if abort_connection(scope):
        await watch.wait(GRACE_SECONDS)  # the server reports it like any disconnect


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


async def send_problem(send: Send, problem: Problem, headers: Headers = ()) -> None:
    """Respond with a problem."""
    await _send_whole(send, problem.status, (*problem.headers(), *headers), problem.body())


async def _send_refusal(send: Send, refused: Refused, proof: Headers) -> None:
    """Respond as the stack does, or as a problem where it has no body for clients."""
    if isinstance(refused, RemoteRefused):
        proof = (*refused.headers, *proof)
        if refused.body is not None:
            await _send_whole(send, refused.status, proof, refused.body)
            return
    await send_problem(send, Problem(refused.status, refused.code, refused.detail), proof)


async def _send_whole(send: Send, status: int, headers: Headers, body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def _response_start(stream: ServedStream) -> dict[str, Any]:
    own = stream.run.headers
    named = {name for name, _ in own}
    defaults = _STREAM_HEADERS[stream.plan.spec.dialect.framing]
    headers = [
        *(header for header in defaults if header[0] not in named),
        *own,
        _NO_BUFFERING,
        *_proof(stream),
    ]
    return {"type": "http.response.start", "status": 200, "headers": headers}


def _proof(stream: ServedStream) -> Headers:
    """Return the headers that name the exchange, the assigned stack and the serving one."""
    plan, serving = stream.plan, stream.served_by
    return (
        (b"x-cutover-exchange", plan.exchange.encode()),
        (b"x-cutover-assigned", plan.assignment.stack.encode()),
        (b"x-cutover-served", f"{serving.name} {serving.fingerprint}".encode()),
    )


class AnswerStored(msgspec.Struct, frozen=True):
    """The answer is stored: the exchange can be resumed."""

    hitl_id: str
    status: str = "answered"


def operation_routes(
    router: Router, memory: BodyMemory, sessions: SessionStore | None, spec: FlowSpec
) -> Iterator[Route]:
    """Yield the routes of a flow that are no streams; `sessions` are what store calls reach."""
    if spec.answer_endpoint is not None:
        respond = _respond(router, memory, spec, spec.answer_endpoint)
        yield Route(spec.answer_endpoint.path, respond, methods=["POST"])
    for call in spec.store_endpoints:
        # An id may hold a slash, which arrives as one however it was written.
        path = call.path.replace("}", ":path}")
        yield Route(path, _store_call(sessions, call), methods=[call.method])


def operation_documents(spec: FlowSpec) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Describe them for the OpenAPI document: path, method, operation."""
    if spec.answer_endpoint is not None:
        path, good = spec.answer_endpoint.path, page_of(AnswerStored)
        described = _described(spec, path, "post", good, _ANSWER_PROBLEMS)
        yield path, "post", described | {"requestBody": body_of(spec.answer_endpoint.request)}
    for call in spec.store_endpoints:
        method = call.method.lower()
        good = {"description": "Done."} if call.reply is None else page_of(call.reply)
        described = _described(spec, call.path, method, good, _STORE_PROBLEMS)
        names = [part[1:-1] for part in call.path.split("/") if part.startswith("{")]
        yield call.path, method, described | {"parameters": [_parameter(name) for name in names]}


_Handler = Callable[[Request], Awaitable[Response]]


def _respond(
    router: Router, memory: BodyMemory, spec: FlowSpec, responding: AnswerEndpoint
) -> _Handler:
    decoder = msgspec.json.Decoder(responding.request)

    async def respond(request: Request) -> Response:
        """Store the answer to a question."""
        limit = router.settings().server.max_body_bytes
        body = decode(decoder, await memory.read(request.scope, request.receive, limit))
        hitl_id = responding.hitl_id(body)
        await router.respond(spec, hitl_id, responding.answer(body))
        return Response(msgspec.json.encode(AnswerStored(hitl_id)), media_type=_JSON)

    return respond


def _store_call(sessions: SessionStore | None, call: StoreEndpoint) -> _Handler:
    async def perform(request: Request) -> Response:
        """Call the stores."""
        if sessions is None:
            raise Problem(503, "not_kept", "nothing is stored here")
        try:
            reply = await call.perform(sessions, _path_arguments(request))
        except Refused as refused:
            raise Problem(refused.status, refused.code, refused.detail) from refused
        except EffectFailed as failure:
            raise Problem(503, failure.fault.code, retry_after=1) from failure
        if reply is None:
            return Response(status_code=204)
        return Response(msgspec.json.encode(reply), media_type=_JSON)

    return perform


def _path_arguments(request: Request) -> dict[str, str]:
    arguments = {name: str(value) for name, value in request.path_params.items()}
    for name, value in arguments.items():
        if _ID.match(value) is None:
            raise Problem(422, "invalid_request", f"{name} is no id")
    return arguments


def _parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": _ID_LENGTH}
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
