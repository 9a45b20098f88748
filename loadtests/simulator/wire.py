"""Answers as the three APIs write them: parts of a stream, or one body. Pure."""

from collections.abc import Iterator
from itertools import count, zip_longest
from typing import Any, NamedTuple

import msgspec

from loadtests.simulator.answer import Answer, split_text
from loadtests.simulator.request import Api, ModelRequest

HTTP_SERVER_ERROR = 500
CREATED = 1_750_000_000
LATE_PAUSES = 10
"""Pauses before a usage that comes late."""
_STOP_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}

Json = dict[str, Any]


class StreamPart(NamedTuple):
    """Bytes sent together, after `pauses` pauses; one that carries something is a chunk."""

    data: bytes
    carries: bool = False
    pauses: int = 1


def error_body(api: Api, status: int, message: str) -> bytes:
    """Return the JSON of an error; its type follows from the status, as with OpenAI."""
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(status)
    kind = kind or ("server_error" if status >= HTTP_SERVER_ERROR else "invalid_request_error")
    error: Json = {"type": kind, "message": message}
    if api == "messages":
        return msgspec.json.encode({"type": "error", "error": error})
    return msgspec.json.encode({"error": error | {"param": None, "code": None}})


def error_event(api: Api, code: str, message: str) -> bytes:
    """Return an error in a stream that began well."""
    if api == "messages":
        return _event({"type": "error", "error": {"type": code, "message": message}})
    error: Json = {"type": code, "code": code, "message": message, "param": None}
    if api == "chat":
        return _data({"error": error})
    return _event(error | {"type": "error", "sequence_number": 0})


def _data(body: Json) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(body)


def _event(body: Json) -> bytes:
    return b"event: %b\n%b" % (body["type"].encode(), _data(body))


def _call_id(request: ModelRequest, answer: Answer, k: int) -> str:
    prefix = "toolu" if request.api == "messages" else "call"
    return answer.tool_calls[k].id or f"{prefix}_{request.digest[:16]}{k}"


def _counts(request: ModelRequest, answer: Answer) -> tuple[int, int]:
    return sum(len(split_text(one.text)) + 4 for one in request.messages), answer.tokens


def _pieces(block: Json, answer: Answer, last: int) -> tuple[str, ...]:
    """Return the pieces in which an item or block is streamed, the `last`-th from the end."""
    match block["type"]:
        case "reasoning" | "thinking":
            return split_text(answer.reasoning)
        case "function_call" | "tool_use":
            return split_text(answer.tool_calls[last].arguments)
        case _:
            return answer.texts


# Chat completions


def _chat_stream(request: ModelRequest, answer: Answer) -> Iterator[StreamPart]:
    head = _chat_head(request, "chat.completion.chunk")

    def chunk(delta: Json, finish: str | None = None) -> bytes:
        return _data(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield StreamPart(chunk({"role": "assistant", "content": "" if answer.texts else None}))
    for piece in split_text(answer.reasoning):
        yield StreamPart(chunk({answer.reasoning_field: piece}), carries=True)
    for piece in answer.texts:
        yield StreamPart(chunk({"content": piece}), carries=True)
    for k, call in enumerate(_chat_calls(request, answer)):
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
        usage = {"choices": [], "usage": _chat_usage(request, answer)}
        yield StreamPart(_data(head | usage), pauses=pauses)
    if answer.done:
        yield StreamPart(b"data: [DONE]\n\n", pauses=0)


def _chat_whole(request: ModelRequest, answer: Answer) -> Json:
    message: Json = {"role": "assistant", "content": "".join(answer.texts) or None}
    if answer.reasoning:
        message[answer.reasoning_field] = answer.reasoning
    if answer.tool_calls:
        message["tool_calls"] = _chat_calls(request, answer)
    choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason}
    body = _chat_head(request, "chat.completion") | {"choices": [choice]}
    return body if answer.usage == "none" else body | {"usage": _chat_usage(request, answer)}


def _chat_head(request: ModelRequest, kind: str) -> Json:
    identity = f"chatcmpl-{request.digest}"
    return {"id": identity, "object": kind, "created": CREATED, "model": request.model}


def _chat_calls(request: ModelRequest, answer: Answer) -> list[Json]:
    functions = [{"name": one.name, "arguments": one.arguments} for one in answer.tool_calls]
    return [
        {"id": _call_id(request, answer, k), "type": "function", "function": function}
        for k, function in enumerate(functions)
    ]


def _chat_usage(request: ModelRequest, answer: Answer) -> Json:
    asked, written = _counts(request, answer)
    return {"prompt_tokens": asked, "completion_tokens": written, "total_tokens": asked + written}


# Responses


_ITEM_EVENTS = {
    "message": ("response.output_text", "response.content_part", "content"),
    "reasoning": ("response.reasoning_summary_text", "response.reasoning_summary_part", "summary"),
    "function_call": ("response.function_call_arguments", "", "arguments"),
}
"""By the type of an item: its deltas' event, its parts' event, the field that is streamed."""


def _responses_stream(request: ModelRequest, answer: Answer) -> Iterator[StreamPart]:
    number = count()

    def event(kind: str, **fields: Any) -> bytes:
        return _event({"type": kind, "sequence_number": next(number)} | fields)

    response = _response(request, answer)
    started = response | {"status": "in_progress", "output": [], "usage": None}
    created = event("response.created", response=started)
    yield StreamPart(created + event("response.in_progress", response=started))
    for k, item in enumerate(response["output"]):
        deltas, parts, field = _ITEM_EVENTS[item["type"]]
        place: Json = {"item_id": item["id"], "output_index": k}
        opened = item | {"status": "in_progress", field: [] if parts else ""}
        before = event("response.output_item.added", output_index=k, item=opened)
        if parts:
            place[f"{field}_index"] = 0
            before += event(f"{parts}.added", **place, part=item[field][0] | {"text": ""})
        for piece in _pieces(item, answer, k - len(response["output"])):
            delta = event(f"{deltas}.delta", **place, delta=piece, logprobs=[])
            yield StreamPart(before + delta, carries=True)
            before = b""
        if parts:
            done = event(f"{deltas}.done", **place, text=item[field][0]["text"], logprobs=[])
            done += event(f"{parts}.done", **place, part=item[field][0])
        else:
            done = event(f"{deltas}.done", **place, name=item["name"], arguments=item[field])
        yield StreamPart(
            before + done + event("response.output_item.done", output_index=k, item=item)
        )
    if answer.done:
        yield StreamPart(event(f"response.{response['status']}", response=response))


def _response(request: ModelRequest, answer: Answer) -> Json:
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    reason = reasons.get(answer.finish_reason or "")
    asked, written = _counts(request, answer)
    usage = {"input_tokens": asked, "output_tokens": written, "total_tokens": asked + written}
    return {
        "id": f"resp_{request.digest}",
        "object": "response",
        "created_at": CREATED,
        "status": "incomplete" if reason else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "model": request.model,
        "output": _response_items(request, answer),
        "usage": None if answer.usage == "none" else usage,
    }


def _response_items(request: ModelRequest, answer: Answer) -> list[Json]:
    items: list[Json] = []
    if answer.reasoning:
        summary = [{"type": "summary_text", "text": answer.reasoning}]
        items.append({"id": f"rs_{request.digest}", "type": "reasoning", "summary": summary})
    if answer.texts:
        text = {"type": "output_text", "text": "".join(answer.texts), "annotations": []}
        message = {"id": f"msg_{request.digest}", "type": "message", "role": "assistant"}
        items.append(message | {"status": "completed", "content": [text]})
    for k, call in enumerate(answer.tool_calls):
        called = {"call_id": _call_id(request, answer, k), "name": call.name}
        item = {"id": f"fc_{request.digest}{k}", "type": "function_call", "status": "completed"}
        items.append(item | called | {"arguments": call.arguments})
    return items


# Messages

_DELTA_FIELDS = {
    "thinking": ("thinking", "thinking_delta", "thinking"),
    "text": ("text", "text_delta", "text"),
    "tool_use": ("input", "input_json_delta", "partial_json"),
}
"""By the type of a block: the field that is streamed, the type of its deltas, their field."""


def _messages_stream(request: ModelRequest, answer: Answer) -> Iterator[StreamPart]:
    whole = _messages_whole(request, answer)
    usage = {"output_tokens": whole["usage"]["output_tokens"]}
    started = whole | {"content": [], "stop_reason": None}
    started["usage"] = whole["usage"] | {"output_tokens": 1}
    yield StreamPart(_event({"type": "message_start", "message": started}))
    for k, block in enumerate(whole["content"]):
        field, kind, delta_field = _DELTA_FIELDS[block["type"]]
        empty = block | {field: {} if field == "input" else ""}
        before = _event({"type": "content_block_start", "index": k, "content_block": empty})
        for piece in _pieces(block, answer, k - len(whole["content"])):
            delta = {"type": kind, delta_field: piece}
            event = _event({"type": "content_block_delta", "index": k, "delta": delta})
            yield StreamPart(before + event, carries=True)
            before = b""
        yield StreamPart(before + _event({"type": "content_block_stop", "index": k}), pauses=0)
    if whole["stop_reason"] is not None:
        stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        yield StreamPart(_event({"type": "message_delta", "delta": stop, "usage": usage}))
    if answer.done:
        yield StreamPart(_event({"type": "message_stop"}), pauses=0)


def _messages_whole(request: ModelRequest, answer: Answer) -> Json:
    content: list[Json] = []
    if answer.reasoning:
        content.append({"type": "thinking", "thinking": answer.reasoning, "signature": ""})
    if answer.texts:
        content.append({"type": "text", "text": "".join(answer.texts)})
    for k, call in enumerate(answer.tool_calls):
        used = {"type": "tool_use", "id": _call_id(request, answer, k), "name": call.name}
        content.append(used | {"input": msgspec.json.decode(call.arguments)})
    asked, written = _counts(request, answer)
    finish = answer.finish_reason
    return {
        "id": f"msg_{request.digest}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": content,
        "stop_reason": _STOP_REASONS.get(finish or "", "refusal") if finish else None,
        "stop_sequence": None,
        "usage": {"input_tokens": asked, "output_tokens": written},
    }


STREAMS = {"chat": _chat_stream, "responses": _responses_stream, "messages": _messages_stream}
WHOLE = {"chat": _chat_whole, "responses": _response, "messages": _messages_whole}
