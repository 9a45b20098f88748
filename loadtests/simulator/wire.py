"""Answers as chat completions write them: parts of a stream, or one body. Pure."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec

from loadtests.simulator.answer import Answer, split_text
from loadtests.simulator.request import ModelRequest

HTTP_SERVER_ERROR = 500
CREATED = 1_750_000_000
LATE_PAUSES = 10
"""Pauses before a usage that comes late."""

Json = dict[str, Any]


class StreamPart(NamedTuple):
    """Bytes sent together, after `pauses` pauses; one that carries something is a chunk."""

    data: bytes
    carries: bool = False
    pauses: int = 1


def error_body(status: int, message: str) -> bytes:
    """Return the JSON of an error; its type follows from the status, as with OpenAI."""
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(status)
    kind = kind or ("server_error" if status >= HTTP_SERVER_ERROR else "invalid_request_error")
    error = {"type": kind, "message": message, "param": None, "code": None}
    return msgspec.json.encode({"error": error})


def error_event(code: str, message: str) -> bytes:
    """Return an error in a stream that began well."""
    return _data({"error": {"type": code, "code": code, "message": message, "param": None}})


def _data(body: Json) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(body)


def chat_stream(request: ModelRequest, answer: Answer) -> Iterator[StreamPart]:
    """Yield the parts of a streamed answer."""
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


def chat_whole(request: ModelRequest, answer: Answer) -> Json:
    """Return the body of a whole answer."""
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
    derived = f"call_{request.digest[:16]}"
    functions = [{"name": one.name, "arguments": one.arguments} for one in answer.tool_calls]
    ids = [one.id or f"{derived}{k}" for k, one in enumerate(answer.tool_calls)]
    return [
        {"id": id_, "type": "function", "function": function}
        for id_, function in zip(ids, functions, strict=True)
    ]


def _usage(request: ModelRequest, answer: Answer) -> Json:
    asked = sum(len(split_text(one.text)) + 4 for one in request.messages)
    written = answer.tokens
    return {"prompt_tokens": asked, "completion_tokens": written, "total_tokens": asked + written}
