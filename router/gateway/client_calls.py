"""Calls that clients of the model make in this process, through a transport, on the tape.

A chat completion is the call that it is through the gateway. Any other request is an external read,
known by method, path and body: its answer is on the tape as it came.
"""

from __future__ import annotations

import codecs
import re
import time
import uuid
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final

import msgspec

from contract.errors import CutoverError, EffectFailed, Fault, FaultCode
from contract.external import ExternalError, ExternalResult, ExternalUpdate, PerformedCall
from contract.model import GATEWAY_SITE, Chunk, RawChunk, SentCall
from contract.normalisation import normal_args
from contract.operations import EXTERNAL_READ, MODEL_STREAM
from cutover_client.requests import Answer, Head, HttpFailed, HttpRequest, Send
from effects.model.errors import error_in, status_fault
from effects.model.stream import RawAssembler
from effects.tape import TapeSession
from router.gateway.answers import DONE, WholeAnswer, Writer, frame_event
from router.gateway.refusals import GatewayRefused, refusal_of
from router.gateway.requests import (
    ILLEGIBLE,
    CompletionRequest,
    call_key,
    ordered,
    read_request,
)
from router.serving.performed import MOST_CHARACTERS

_COMPLETIONS: Final = "/chat/completions"
_EVENTS: Final = (("content-type", "text/event-stream"),)
_JSON: Final = (("content-type", "application/json"),)
_KEPT: Final = frozenset(
    {
        *("content-type", "location", "retry-after", "retry-after-ms", "x-should-retry"),
        *("request-id", "x-request-id"),
    }
)
"""Headers of an answer that other runs get, too. Others may hold what is for one client alone."""
_REDIRECTION: Final = 300
_BROKEN_OFF: Final = "ReadError"
"""What a client sees of an answer that the router itself ends."""
_BOUNDARY: Final = re.compile(r'boundary="?([^";,\s]+)')


class _AnsweredFault(Fault, frozen=True, omit_defaults=True, dict=True):
    """A fault with the answer that it was, for runs of the same exchange; not recorded."""

    @classmethod
    def made(cls, fault: Fault, head: Head, body: bytes) -> _AnsweredFault:
        """Make one of a fault."""
        answered = cls(fault.code, fault.retryable, fault.data)
        answered.__dict__.update(head=head, body=body)
        return answered

    @property
    def head(self) -> Head:
        """The head of the answer; of status 200 where the fault came inside it."""
        head: Head = self.__dict__["head"]
        return head

    @property
    def body(self) -> bytes:
        """The body of the answer, or the data of the event that reports the fault."""
        body: bytes = self.__dict__["body"]
        return body


async def answered(session: TapeSession, request: HttpRequest, send: Send) -> Answer:
    """Answer a request from the tape of a run, which sends it where it is to be made."""
    completion = _completion(request)
    if completion is None:
        answer = _other_answer(session, request, send)
    else:
        answer = _completion_answer(session, completion, send)
    begun = False
    async with aclosing(answer) as pieces:
        try:
            async for piece in pieces:
                yield piece
                begun = True
        except HttpFailed:
            raise
        except CutoverError as error:
            if begun:
                raise HttpFailed(_BROKEN_OFF) from error
            for piece in refused(refusal_of(error), error):
                yield piece


def refused(refusal: GatewayRefused, cause: BaseException) -> tuple[Head, bytes]:
    """Return a refusal as an answer; SDKs do not repeat such calls."""
    headers = tuple((name.decode(), value.decode()) for name, value in refusal.headers())
    return Head(refusal.status, headers, cause), refusal.body()


def _completion(request: HttpRequest) -> CompletionRequest | None:
    """Return the chat completion that a request is; None where the gateway would not take it."""
    if request.method != "POST" or not request.path.endswith(_COMPLETIONS):
        return None
    try:
        return read_request(request.body)
    except GatewayRefused:
        return None


async def _completion_answer(
    session: TapeSession, completion: CompletionRequest, send: Send
) -> Answer:
    call, stream = completion.call, completion.stream
    sent = SentCall.made(call, lambda: _chunks(send, stream=stream))
    key = await call_key(call)
    chunks = session.stream(MODEL_STREAM, GATEWAY_SITE, sent, key, normal_args)
    answer_id, created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())
    writer = Writer(answer_id, created, call.model_id, usage=completion.usage or not stream)
    whole, body, begun = WholeAnswer(), b"", False
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                events = writer.write(chunk)
                if stream:
                    if not begun:
                        yield Head(HTTPStatus.OK, _EVENTS)
                        begun = True
                    if data := b"".join(map(frame_event, events)):
                        yield data
                elif isinstance(chunk, RawChunk) and chunk.body:
                    body = chunk.body
                else:
                    whole.take(events)
    except EffectFailed as error:
        if not _is_read_to_its_end(error.fault) or (writer.empty and not stream):
            async for piece in _failed_answer(error, begun=begun, stream=stream):
                yield piece
            return
        if stream:
            if not begun:
                yield Head(HTTPStatus.OK, _EVENTS)
            return
    if stream:
        yield DONE
    else:
        yield Head(HTTPStatus.OK, _JSON)
        yield body or whole.body()


def _is_read_to_its_end(fault: Fault) -> bool:
    """Whether clients take an answer as it is: it has ended as if nothing were missing."""
    unnoticed = fault.code == "model_truncated" and "cause" not in fault.data
    return unnoticed and not isinstance(fault, _AnsweredFault)


async def _failed_answer(
    error: EffectFailed, *, begun: bool, stream: bool
) -> AsyncGenerator[Head | bytes, None]:
    """Yield what follows of an answer that failed; raises `HttpFailed`."""
    fault = error.fault
    if isinstance(fault, _AnsweredFault):
        in_band = stream and fault.head.status == HTTPStatus.OK
        if not begun:
            yield Head(fault.head.status, fault.head.headers, error)
        yield frame_event(fault.body) if in_band else fault.body
        return
    if isinstance(cause := fault.data.get("cause"), str):
        raise HttpFailed(cause) from error
    refusal = refusal_of(error)
    if begun:
        yield frame_event(refusal.body())
        return
    status = fault.data.get("status")
    if isinstance(status, int):  # as the provider said it: SDKs repeat what they did then
        yield Head(status, _told(refusal), error)
        yield msgspec.json.encode(_told_error(fault, refusal))
    else:
        for piece in refused(refusal, error):
            yield piece


def _told(refusal: GatewayRefused) -> tuple[tuple[str, str], ...]:
    headers = ((name.decode(), value.decode()) for name, value in refusal.headers())
    return tuple(one for one in headers if one[0] != "x-should-retry")


def _told_error(fault: Fault, refusal: GatewayRefused) -> dict[str, Any]:
    kind, code = fault.data.get("type"), fault.data.get("code", fault.code)
    return {"error": {"message": refusal.message, "type": kind, "param": None, "code": code}}


async def _chunks(send: Send, *, stream: bool) -> AsyncIterator[Chunk]:
    """Send a chat completion; yield the chunks of its answer, with the bytes they came in.

    Raises `EffectFailed` with the answer that it is.
    """
    assembler, head = RawAssembler(), Head(0)
    body: list[bytes] = []
    try:
        async with aclosing(send()) as pieces:
            async for piece in pieces:
                if isinstance(piece, Head):
                    head = Head(piece.status, _kept(piece))
                elif head.status >= _REDIRECTION or not stream:
                    body.append(piece)
                else:
                    for chunk in assembler.feed(piece):
                        yield chunk
    except HttpFailed as failed:
        raise EffectFailed(_failure(failed, begun=bool(head.status))) from failed
    joined = b"".join(body)
    if head.status >= _REDIRECTION:
        told = status_fault(head.status, dict(head.headers), error_in(joined), datetime.now(UTC))
        raise EffectFailed(_AnsweredFault.made(told, head, joined))
    for chunk in [*assembler.feed(joined), *assembler.flush()]:
        yield msgspec.structs.replace(chunk, body=joined) if joined else chunk
    fault = assembler.end()
    if fault is not None:
        in_it = joined or assembler.failed
        raise EffectFailed(_AnsweredFault.made(fault, head, in_it) if in_it else fault)


def _kept(head: Head) -> tuple[tuple[str, str], ...]:
    return tuple(one for one in head.headers if one[0] in _KEPT)


def _failure(failed: HttpFailed, *, begun: bool) -> Fault:
    """Return the fault of a call without an answer, or whose answer broke off."""
    code: FaultCode = "model_truncated" if begun else "model_unavailable"
    if "Timeout" in failed.kind:
        code = "model_timeout_idle" if begun else "model_timeout_first_byte"
    return Fault(code, retryable=True, data={"cause": failed.kind})


async def _other_answer(session: TapeSession, request: HttpRequest, send: Send) -> Answer:
    call = PerformedCall.made(await _arguments(request), "", lambda: _updates(send))
    site = f"{request.method} {request.path}"[:MOST_CHARACTERS]
    head: Head | None = None
    error_body: list[bytes] = []
    async with aclosing(session.stream(EXTERNAL_READ, site, call)) as updates:
        async for update in updates:
            if update.result is not None:
                if (error := update.result.error) is not None:
                    failed = HttpFailed(error.type)
                    raise failed from EffectFailed(_failure(failed, begun=head is not None))
            elif head is None:
                headers = tuple(update.value["headers"].items())
                head = Head(update.value["status"], headers)
                if head.status < HTTPStatus.BAD_REQUEST:
                    yield head
            elif head.status < HTTPStatus.BAD_REQUEST:
                yield _piece(update.value)
            else:
                error_body.append(_piece(update.value))
    if head is not None and head.status >= HTTPStatus.BAD_REQUEST:
        body = b"".join(error_body)
        fault = status_fault(head.status, dict(head.headers), error_in(body), datetime.now(UTC))
        yield Head(head.status, head.headers, EffectFailed(fault))
        yield body


async def _arguments(request: HttpRequest) -> dict[str, Any]:
    """Return what tells a request from others at its path."""
    arguments: dict[str, Any] = {"query": request.query} if request.query else {}
    if not request.body:
        return arguments
    try:
        request.body.decode()
        return arguments | {"body": await ordered(msgspec.Raw(request.body))}
    except ILLEGIBLE:
        found = _BOUNDARY.search(request.kind)
        # A form has another boundary each time.
        body = request.body.replace(found[1].encode(), b"") if found else request.body
        return arguments | {"sha256": sha256(body).hexdigest()}


async def _updates(send: Send) -> AsyncIterator[ExternalUpdate]:
    """Send a request; yield the head of its answer, its body in pieces, and how it ended."""
    text = _Text()
    try:
        async with aclosing(send()) as pieces:
            async for piece in pieces:
                if isinstance(piece, Head):
                    yield ExternalUpdate({"status": piece.status, "headers": dict(_kept(piece))})
                else:
                    for value in text.values(piece):
                        yield ExternalUpdate(value)
    except HttpFailed as failed:
        yield ExternalUpdate(result=ExternalResult(error=ExternalError(failed.kind)))
        return
    for value in text.rest():
        yield ExternalUpdate(value)
    yield ExternalUpdate(result=ExternalResult())


class _Text:
    """Writes the bytes of a body as JSON: as text or, from where they are none, in base 64."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._binary = False

    def values(self, piece: bytes) -> Sequence[Any]:
        """Return the values that stand for a piece."""
        if not self._binary:
            held = self._decoder.getstate()[0]
            try:
                text = self._decoder.decode(piece)
            except UnicodeDecodeError:
                self._binary, piece = True, held + piece
            else:
                return [text] if text else []
        return [_base64(piece)]

    def rest(self) -> Sequence[Any]:
        """Return the value of what was held back for more to come."""
        held = b"" if self._binary else self._decoder.getstate()[0]
        return [_base64(held)] if held else []


def _base64(data: bytes) -> dict[str, str]:
    return {"base64": b64encode(data).decode()}


def _piece(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else b64decode(value["base64"])
