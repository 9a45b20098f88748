"""The endpoints of a flow: its stream, its resumption, answers to questions, calls to the stores.

The stream is plain ASGI, because a framework's layers cost more than the whole route.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from contract.errors import EffectFailed, Refused
from contract.flow import AnswerEndpoint, ContinueEndpoint, FlowSpec, SessionStore, StoreEndpoint
from contract.qa_header import QA_HEADER
from effects.tasks import EXCHANGE
from router.http.connection import (
    WRITE_NOW,
    BodyMemory,
    DisconnectWatch,
    SlowClient,
    abort_connection,
    extension,
    timed_send,
)
from router.http.openapi import ID_LENGTH, AnswerStored, outline_of
from router.problems import Problem
from router.remote import RemoteRefused
from router.router import Router
from router.serving.stream import GRACE_SECONDS, NotServed, ServedStream, WriteNow
from router.stack import EXCHANGE_HEADER, Headers, IncomingRequest

log = logging.getLogger(__name__)

_QA = QA_HEADER.encode()
_NO_STORE = (b"cache-control", b"no-store")
# Proxies such as nginx buffer streams unless a header forbids it.
_NO_BUFFERING = (b"x-accel-buffering", b"no")
STREAM_HEADERS: Final = {
    "sse": ((b"content-type", b"text/event-stream; charset=utf-8"), _NO_STORE, _NO_BUFFERING),
    "ndjson": ((b"content-type", b"application/x-ndjson"), _NO_STORE, _NO_BUFFERING),
    "text": ((b"content-type", b"text/plain; charset=utf-8"), _NO_STORE, _NO_BUFFERING),
}
"""Headers of a streamed response, by its framing."""

_JSON = "application/json"
_ID = re.compile(rf"[^\x00-\x1f]{{1,{ID_LENGTH}}}\Z")


class FlowEndpoint:
    """Serves one flow over HTTP: at its own path, a further one, or where it is resumed."""

    def __init__(
        self,
        router: Router,
        memory: BodyMemory,
        spec: FlowSpec,
        path: str = "",
        continuing: ContinueEndpoint | None = None,
    ) -> None:
        path = path or spec.path
        self._router = router
        self._memory = memory
        self._spec = spec
        self._path = "" if path == spec.path else path
        self._longest = spec.body_limits.get(path, 0)
        self._continuing = continuing
        request = spec.requests[path] if continuing is None else continuing.request
        self._decoder = msgspec.json.Decoder(request)
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        router, body = self._router, b""
        if router.draining:
            stopping = Problem(503, "stopping", "this router is shutting down", retry_after=1)
            await self._refuse(send, stopping)
            return
        try:
            router.admission.check_slot(self._spec.name)
            server = router.settings().server
            most = max(server.max_body_bytes, self._longest)
            body = await self._memory.read(scope, receive, most)
            stream = await self._open(
                IncomingRequest(
                    body,
                    tuple(scope["headers"]),
                    scope["query_string"],
                    peer=scope["client"][0] if scope.get("client") else "",
                    scheme=scope.get("scheme", "http"),
                    proxies=server.trusted_proxies,
                )
            )
        except Problem as problem:
            await self._refuse(send, problem)
        else:
            await self._serve(stream, scope, receive, send)
        finally:
            self._memory.release(body)

    async def _refuse(self, send: Send, problem: Problem) -> None:
        self._router.refused(self._spec.name, problem)
        await send_problem(send, problem)

    async def _open(self, incoming: IncomingRequest) -> ServedStream:
        """Open the exchange of a request, a new one or one that resumes a pause."""
        router, spec, continuing = self._router, self._spec, self._continuing
        body = decode(self._decoder, incoming.body, self._expected)
        signed = dict(incoming.headers).get(_QA)
        qa_header = None if signed is None else signed.decode("latin-1")
        if continuing is None:
            return await router.open(spec, body, qa_header, incoming, path=self._path)
        hitl_id = continuing.hitl_id(body)
        if continuing.answer is not None:
            await router.respond(spec, hitl_id, continuing.answer(body))
        return await router.resume(spec, hitl_id, qa_header, incoming)

    def _expected(self) -> str:
        spec = self._spec
        kind = "" if spec.declared else ", which is built in,"
        return f"flow {spec.name!r}{kind} expects {outline_of(self._request, spec.example)}"

    async def _serve(
        self, stream: ServedStream, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send the stream, and close it when the client has it or has gone."""
        exchange = stream.context.exchange
        EXCHANGE.set(exchange)
        watch = DisconnectWatch(scope, receive, stream.disconnect)
        try:
            async with timed_send(send, self._router.settings().limits.send_seconds) as timed:
                await self._send(stream, timed, extension(scope, WRITE_NOW))
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


async def _abort(scope: Scope, watch: DisconnectWatch) -> None:
    """Drop the connection with all that waits in it: closing it would wait for the client."""
    if abort_connection(scope):
        await watch.wait(GRACE_SECONDS)  # the server reports it like any disconnect


def _nothing() -> str:
    return ""


def decode(
    decoder: msgspec.json.Decoder[Any], body: bytes, expected: Callable[[], str] = _nothing
) -> Any:
    """Decode a body; raises `Problem` 400 or 422 that says what is wrong, where, and what is due.

    `expected` says what a body looks like, "" where that is not known.
    """
    if not body:
        detail = "; ".join(filter(None, ("a JSON object is required", expected())))
        raise Problem(400, "empty_body", detail)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        detail = "; ".join(filter(None, (str(error), expected())))
        raise Problem(422, "invalid_request", detail) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, "not_json", "the body is not JSON in UTF-8") from error
    except RecursionError as error:
        raise Problem(400, "too_deep", "the body is nested too deeply") from error


async def read_json(
    memory: BodyMemory, request: Request, decoder: msgspec.json.Decoder[Any], most: int
) -> Any:
    """Read a request's body of at most `most` bytes and decode it; raises `Problem`."""
    body = await memory.read(request.scope, request.receive, most)
    memory.release(body)
    return decode(decoder, body)


async def send_problem(send: Send, problem: Problem, headers: Headers = ()) -> None:
    """Respond with a problem."""
    await send_whole(send, problem.status, (*problem.headers(), *headers), problem.body())


async def _send_refusal(send: Send, refused: Refused, proof: Headers) -> None:
    """Respond as the stack does, or as a problem where it has no body for clients."""
    if isinstance(refused, RemoteRefused):
        proof = (*refused.headers, *proof)
        if refused.body is not None:
            await send_whole(send, refused.status, proof, refused.body)
            return
    await send_problem(send, Problem(refused.status, refused.code, refused.detail), proof)


async def send_whole(
    send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes
) -> None:
    """Respond in one piece."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def _response_start(stream: ServedStream) -> dict[str, Any]:
    own = stream.run.headers
    headers = [*STREAM_HEADERS[stream.context.spec.dialect.framing]]
    if own:
        named = dict(own)
        headers = [header for header in headers if header[0] not in named]
    headers += (*own, *_proof(stream))
    return {"type": "http.response.start", "status": 200, "headers": headers}


def _proof(stream: ServedStream) -> Headers:
    """Return the headers that name the exchange, the assigned stack and the serving one."""
    context, serving = stream.context, stream.served_by
    return (
        (EXCHANGE_HEADER, context.exchange.encode()),
        (b"x-cutover-assigned", context.assignment.stack.encode()),
        (b"x-cutover-served", f"{serving.name} {serving.fingerprint}".encode()),
    )


_Handler = Callable[[Request], Awaitable[Response]]


def operation_routes(
    router: Router, memory: BodyMemory, sessions: SessionStore | None, spec: FlowSpec
) -> Iterator[Route]:
    """Yield the routes of a flow that are no streams; `sessions` are what store calls reach."""
    if spec.pausing is not None and (responding := spec.pausing.respond) is not None:
        respond = _respond(router, memory, spec, responding)
        yield Route(responding.path, respond, methods=["POST"])
    for call in spec.store_endpoints:
        # An id may hold a slash, which arrives as one however it was written.
        path = call.path.replace("}", ":path}")
        yield Route(path, _store_call(sessions, call), methods=[call.method])


def _respond(
    router: Router, memory: BodyMemory, spec: FlowSpec, responding: AnswerEndpoint
) -> _Handler:
    decoder = msgspec.json.Decoder(responding.request)

    async def respond(request: Request) -> Response:
        """Store the answer to a question."""
        limit = router.settings().server.max_body_bytes
        body = await read_json(memory, request, decoder, limit)
        hitl_id = responding.hitl_id(body)
        await router.respond(spec, hitl_id, responding.answer(body))
        return Response(msgspec.json.encode(AnswerStored(hitl_id)), media_type=_JSON)

    return respond


def _store_call(sessions: SessionStore | None, call: StoreEndpoint) -> _Handler:
    async def perform(request: Request) -> Response:
        """Call the stores."""
        if sessions is None:
            raise Problem(503, "not_kept", "nothing is stored here")
        arguments = {name: str(value) for name, value in request.path_params.items()}
        for name, value in arguments.items():
            if _ID.match(value) is None:
                raise Problem(422, "invalid_request", f"{name} is no id")
        try:
            reply = await call.perform(sessions, arguments)
        except Refused as refused:
            raise Problem(refused.status, refused.code, refused.detail) from refused
        except EffectFailed as failure:
            raise Problem(503, failure.fault.code, retry_after=1) from failure
        if reply is None:
            return Response(status_code=204)
        return Response(msgspec.json.encode(reply), media_type=_JSON)

    return perform
