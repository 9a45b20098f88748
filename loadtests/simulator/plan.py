"""What is sent for an answer, as far as a fault lets it go out: parts of a stream, or a body."""

import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec

from loadtests.simulator.answer import (
    Answer,
    Cut,
    ErrorEvent,
    Fault,
    Garbage,
    Silence,
    split_text,
)
from loadtests.simulator.request import ModelRequest

OK, HTTP_SERVER_ERROR = 200, 500
CREATED = 1_750_000_000
LATE_PAUSES = 10
"""Pauses before a usage that comes late."""
_GARBAGE = b"data: {broken\n\n"
Json = dict[str, Any]
Headers = tuple[tuple[str, str], ...]


class StreamPart(NamedTuple):
    """Bytes sent together, after `pauses` pauses; one that carries something is a chunk."""

    data: bytes
    carries: bool = False
    pauses: int = 1


Parts = tuple[StreamPart, ...]


class Plan(NamedTuple):
    """An answer as it goes out; `fault` is what `play` has to do beside sending the parts."""

    parts: Parts
    media: str = "application/json"
    status: int = OK
    headers: Headers = ()
    fault: Fault | None = None


def plan_answer(request: ModelRequest, answer: Answer) -> Plan:
    """Return the plan of an answer to a request for a model."""
    if answer.status != OK:
        return plan_body(b"", answer)
    if answer.raw is not None:
        return plan_raw(answer.raw, answer.headers, answer.fault)
    if request.stream:
        return _plan_stream(_chat_stream(request, answer), answer.headers, answer.fault)
    return plan_body(msgspec.json.encode(_chat_whole(request, answer)), answer)


def plan_raw(raw: str, headers: Headers = (), fault: Fault | None = None) -> Plan:
    """Return the plan of an exact body, of events or of JSON."""
    events = re.split(rb"(?<=\n\n)", raw.encode())  # every byte is kept
    parts = [StreamPart(event, carries=True) for event in events if event]
    plan = _plan_stream(parts, headers, fault)
    return plan if not raw.lstrip().startswith("{") else plan._replace(media="application/json")


def _plan_stream(parts: Iterable[StreamPart], headers: Headers, fault: Fault | None) -> Plan:
    struck = _struck(tuple(parts), fault)
    return Plan(struck, "text/event-stream; charset=utf-8", headers=headers, fault=fault)


def plan_body(body: bytes, answer: Answer) -> Plan:
    """Return the plan of a whole body, or of the error whose status the answer has."""
    status, fault = answer.status, answer.fault
    message = answer.text or f"The simulated provider answers with status {status}."
    if isinstance(fault, ErrorEvent):
        status, message, fault = HTTP_SERVER_ERROR, fault.message, None
    if isinstance(fault, Garbage):
        body, fault = b"{broken", None
    if status != OK:
        body = _error_body(status, message) if answer.raw is None else answer.raw.encode()
    half = len(body) // 2 if isinstance(fault, Cut | Silence) else len(body)
    return Plan((StreamPart(body[:half]),), status=status, headers=answer.headers, fault=fault)


def _struck(parts: Parts, fault: Fault | None) -> Parts:
    """Return what goes out before a stream breaks off, or with what does not belong in it."""
    match fault:
        case Cut(after) | Silence(after):
            return parts[: _place(parts, after)]
        case ErrorEvent(after, code, message):
            return (*parts[: _place(parts, after)], StreamPart(_error_event(code, message)))
        case Garbage(at):
            place = _place(parts, at)
            return (*parts[:place], StreamPart(_GARBAGE), *parts[place:])
        case _:
            return parts


def _place(parts: Parts, chunks: int) -> int:
    """Return the index of the part that follows the first `chunks` chunks."""
    carriers = [k for k, part in enumerate(parts) if part.carries]
    return carriers[chunks] if chunks < len(carriers) else carriers[-1] + 1 if carriers else 0


# Chat completions


def _error_body(status: int, message: str) -> bytes:
    """Return the JSON of an error; its type follows from the status, as with OpenAI."""
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(status)
    kind = kind or ("server_error" if status >= HTTP_SERVER_ERROR else "invalid_request_error")
    error = {"type": kind, "message": message, "param": None, "code": None}
    return msgspec.json.encode({"error": error})


def _error_event(code: str, message: str) -> bytes:
    """Return an error in a stream that began well."""
    return _data({"error": {"type": code, "code": code, "message": message, "param": None}})


def _data(body: Json) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(body)


def _chat_stream(request: ModelRequest, answer: Answer) -> Iterator[StreamPart]:
    head = _head(request, "chat.completion.chunk")

    def chunk(delta: Json, finish: str | None = None) -> bytes:
        return _data(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield StreamPart(chunk({"role": "assistant", "content": "" if answer.texts else None}))
    for piece in split_text(answer.reasoning):
        yield StreamPart(chunk({answer.reasoning_field: piece}), carries=True)
    for piece in answer.texts:
        yield StreamPart(chunk({"content": piece}), carries=True)
    for k, call in enumerate(_calls(request, answer)):
        opened: Json = {"index": k} | call
        opened["function"] = call["function"] | {"arguments": ""}
        yield StreamPart(chunk({"tool_calls": [opened]}), carries=True)
    # As with real providers, the arguments of several calls take turns.
    for turn in zip_longest(*(split_text(call.arguments) for call in answer.tool_calls)):
        for k, piece in enumerate(turn):
            if piece is not None:
                delta = {"index": k, "function": {"arguments": piece}}
                yield StreamPart(chunk({"tool_calls": [delta]}), carries=True)
    if answer.finish_reason is not None:
        yield StreamPart(chunk({}, answer.finish_reason))
    if request.include_usage and answer.usage != "none":
        pauses = LATE_PAUSES if answer.usage == "late" else 1
        usage = {"choices": [], "usage": _usage(request, answer)}
        yield StreamPart(_data(head | usage), pauses=pauses)
    if answer.done:
        yield StreamPart(b"data: [DONE]\n\n", pauses=0)


def _chat_whole(request: ModelRequest, answer: Answer) -> Json:
    message: Json = {"role": "assistant", "content": "".join(answer.texts) or None}
    if answer.reasoning:
        message[answer.reasoning_field] = answer.reasoning
    if answer.tool_calls:
        message["tool_calls"] = _calls(request, answer)
    choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason}
    body = _head(request, "chat.completion") | {"choices": [choice]}
    return body if answer.usage == "none" else body | {"usage": _usage(request, answer)}


def _head(request: ModelRequest, kind: str) -> Json:
    identity = f"chatcmpl-{request.digest}"
    return {"id": identity, "object": kind, "created": CREATED, "model": request.model}


def _calls(request: ModelRequest, answer: Answer) -> list[Json]:
    calls: list[Json] = []
    for k, call in enumerate(answer.tool_calls):
        function = {"name": call.name, "arguments": call.arguments}
        identity = call.id or f"call_{request.digest[:16]}{k}"
        calls.append({"id": identity, "type": "function", "function": function})
    return calls


def _usage(request: ModelRequest, answer: Answer) -> Json:
    asked = sum(len(split_text(one.text)) + 4 for one in request.messages)
    written = answer.tokens
    return {"prompt_tokens": asked, "completion_tokens": written, "total_tokens": asked + written}
