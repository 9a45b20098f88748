"""Answers in the shapes providers give them, and what has to become of each.

One list for the model port, the gateway and the chats. `body` are the bytes of the response's body:
an error's JSON, a whole answer, or a stream of events.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from contract.errors import FaultCode
from contract.model import ToolCall, Usage
from tests.support.loopback_provider import Wire

Kind = Literal[
    "context_length", "not_served", "overloaded", "policy", "request", "speech", "cut", "calls",
    "usage",
]  # fmt: skip
Then = Literal["larger", "move", "again", "restart", "stop"]
"""What follows a fault, as `effects.model.retry.Remedy` has it, after `Expected.text` was sent."""

DONE = b"data: [DONE]\n\n"
JSON = {"content-type": "application/json"}
STREAM = {"content-type": "text/event-stream"}


@dataclass(frozen=True)
class Expected:
    """What comes of an answer through the port: a fault and what follows it, or what was said.

    With a fault, `text` is what came before it. `refusal` is text to a chat; a client of the
    gateway finds it under its own name.
    """

    fault: FaultCode | None = None
    then: Then | None = None
    text: str = ""
    refusal: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: str = ""
    usage: Usage | None = None


@dataclass(frozen=True)
class Shape:
    """One answer of one provider."""

    name: str
    provider: str
    kind: Kind
    status: int
    body: bytes
    expected: Expected
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)

    def __str__(self) -> str:
        return f"{self.provider}: {self.name}"

    async def answer(self, wire: Wire) -> None:
        """Send it over a loopback connection."""
        await wire.head(self.status, self.headers)
        await wire.send(self.body)
        await wire.end()

    @property
    def streamed(self) -> bool:
        """Whether the body is a stream of events."""
        return self.headers is STREAM


def _error(
    kind: Kind, provider: str, name: str, status: int, body: object, fault: FaultCode, then: Then
) -> Shape:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "text/html"} if data.startswith(b"<") else JSON
    return Shape(name, provider, kind, status, data, Expected(fault, then), headers)


def _too_long(
    provider: str, status: int, body: object, name: str = "the request is too long"
) -> Shape:
    fault: FaultCode = "model_context_length"
    return _error("context_length", provider, name, status, body, fault, "larger")


def _unknown(
    provider: str, status: int, body: object, name: str = "a model it does not have"
) -> Shape:
    return _error("not_served", provider, name, status, body, "unknown_model", "move")


def _elsewhere(
    provider: str, status: int, body: object, name: str = "nothing is served here"
) -> Shape:
    return _error("not_served", provider, name, status, body, "model_unavailable", "move")


def _busy(
    provider: str,
    status: int,
    body: object,
    fault: FaultCode = "model_unavailable",
    then: Then = "again",
    name: str = "overloaded",
) -> Shape:
    return _error("overloaded", provider, name, status, body, fault, then)


def events(*data: object, done: bool = True) -> bytes:
    """Encode a stream of events; bytes stand for themselves."""
    lines = [
        one if isinstance(one, bytes) else b"data: " + json.dumps(one).encode() + b"\n\n"
        for one in data
    ]
    return b"".join(lines) + (DONE if done else b"")


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """Make a chunk of one choice that adds these fields."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "loop-1",
        "choices": [{"index": 0, "delta": fields, "finish_reason": finish}],
    }


def _stream(
    kind: Kind, provider: str, name: str, expected: Expected, *data: object, done: bool = True
) -> Shape:
    return Shape(name, provider, kind, 200, events(*data, done=done), expected, STREAM)


def _nested(message: str, **more: object) -> dict[str, object]:
    return {"error": {"message": message, **more}}


_INVALID = {"type": "invalid_request_error", "param": None}
_TOO_MANY = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"

CONTEXT_LENGTH = (
    _too_long("openai", 400, _nested(_TOO_MANY, **_INVALID, code="context_length_exceeded")),
    _too_long(
        "openai",
        400,
        _nested("Your input exceeds the context window of this model.", **_INVALID, code=None),
        "in the words of its newer API",
    ),
    _too_long("azure", 400, _nested(_TOO_MANY, code="context_length_exceeded", param="messages")),
    _too_long(
        "vllm",
        400,
        {"object": "error", "message": _TOO_MANY, "type": "BadRequestError", "code": 400},
    ),
    _too_long("vllm", 400, _nested(_TOO_MANY, type="BadRequestError", code=400), "newer"),
    *(
        _too_long(
            "llama.cpp",
            status,
            _nested(
                "the request exceeds the available context size, try increasing it",
                code=status if status != 200 else 400,
                type="exceed_context_size_error",
                n_prompt_tokens=1407,
                n_ctx=256,
            ),
            f"status {status}",
        )
        for status in (400, 500, 200)
    ),
    _too_long(
        "tgi",
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. "
            "Given: 5000 `inputs` tokens and 100 `max_new_tokens`",
            "error_type": "validation",
        },
    ),
    _too_long(
        "gemini",
        400,
        [
            _nested(
                "The input token count (1200293) exceeds the maximum number of tokens allowed "
                "(1048576).",
                code=400,
                status="INVALID_ARGUMENT",
            )
        ],
    ),
    _too_long(
        "xai",
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "This model's maximum prompt length is 131072 but the request contains "
            "136973 tokens.",
        },
    ),
    _too_long(
        "groq",
        400,
        _nested(
            "Please reduce the length of the messages or completion.",
            **_INVALID,
            code="context_length_exceeded",
        ),
    ),
    _too_long(
        "mistral",
        400,
        {
            "object": "error",
            "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with "
            "32768 maximum context length",
            "type": "invalid_request_error",
            "param": None,
            "code": "3051",
        },
    ),
    _too_long("mistral", 413, b"", "413 without a body"),
    _too_long(
        "together",
        422,
        _nested(
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. "
            "Given: 9000 `inputs` tokens and 100 `max_new_tokens`",
            **_INVALID,
            code=None,
        ),
    ),
    _too_long(
        "openrouter",
        400,
        _nested(
            "This endpoint's maximum context length is 131072 tokens. However, you requested about "
            "140000 tokens",
            code=400,
            metadata={"provider_name": None},
        ),
    ),
    _too_long(
        "anthropic",
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 213462 tokens > 200000 maximum",
            },
        },
    ),
    _too_long(
        "lm studio",
        400,
        {"error": "The number of tokens to keep is greater than the context length."},
    ),
    _stream(
        "context_length",
        "llama.cpp",
        "inside the stream",
        Expected("model_context_length", "larger"),
        _nested(
            "the request exceeds the available context size, try increasing it",
            code=400,
            type="exceed_context_size_error",
        ),
        done=False,
    ),
    _stream(
        "context_length",
        "vllm",
        "inside the stream",
        Expected("model_context_length", "larger"),
        _nested(_TOO_MANY, type="BadRequestError", code=400),
    ),
)

NOT_SERVED = (
    _unknown(
        "openai",
        404,
        _nested("The model `x` does not exist.", **_INVALID, code="model_not_found"),
    ),
    _unknown(
        "azure",
        404,
        _nested("The API deployment for this resource does not exist.", code="DeploymentNotFound"),
    ),
    _unknown(
        "azure",
        400,
        _nested(
            "The chatCompletion operation does not work with the specified model, x.",
            code="OperationNotSupported",
        ),
        "a model that does not chat",
    ),
    _unknown(
        "vllm",
        404,
        {
            "object": "error",
            "message": "The model `x` does not exist.",
            "type": "NotFoundError",
            "param": None,
            "code": 404,
        },
    ),
    _unknown(
        "ollama",
        404,
        _nested('model "x" not found, try pulling it first', type="api_error", code=None),
    ),
    _unknown(
        "ollama",
        404,
        _nested('model "x" not found', type="not_found_error", param=None, code=None),
        "newer",
    ),
    _unknown(
        "gemini",
        404,
        [
            _nested(
                "models/x is not found for API version v1main, or is not supported.",
                code=404,
                status="NOT_FOUND",
            )
        ],
    ),
    _unknown(
        "xai",
        404,
        {
            "code": "The requested resource was not found",
            "error": "The model x does not exist or your team does not have access to it.",
        },
    ),
    _unknown(
        "groq",
        404,
        _nested("The model `x` does not exist.", **_INVALID, code="model_not_found"),
    ),
    _unknown(
        "groq",
        400,
        _nested("The model `x` has been decommissioned.", **_INVALID, code="model_decommissioned"),
        "a model that was withdrawn",
    ),
    _unknown(
        "mistral",
        400,
        {
            "object": "error",
            "message": "Invalid model: x",
            "type": "invalid_model",
            "param": None,
            "code": "1500",
        },
    ),
    _unknown(
        "together",
        404,
        _nested("Unable to access model x.", **_INVALID, code="model_not_available"),
    ),
    _unknown("openrouter", 400, _nested("x is not a valid model ID", code=400)),
    _unknown("openrouter", 404, _nested("No endpoints found for x.", code=404), "no endpoints"),
    _elsewhere("ingress", 404, b"<html><body>404 Not Found</body></html>", "404 as HTML"),
    _elsewhere("ingress", 404, b"", "404 without a body"),
    _elsewhere("vllm", 404, {"detail": "Not Found"}, "a path it does not have"),
    _elsewhere("ingress", 405, {"detail": "Method Not Allowed"}, "405"),
    _elsewhere("ingress", 410, b"<html>Gone</html>", "410"),
)

OVERLOADED = (
    _busy("openai", 503, _nested("The server is overloaded.", type="server_error")),
    _busy(
        "openai",
        429,
        _nested("Rate limit reached.", type="tokens", code="rate_limit_exceeded"),
        "model_rate_limited",
        name="too many requests",
    ),
    _busy(
        "openai",
        429,
        _nested("You exceeded your quota.", type="insufficient_quota", code="insufficient_quota"),
        "model_rate_limited",
        "move",
        "nothing left to pay with",
    ),
    _busy(
        "groq",
        413,
        _nested(
            "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested "
            "7000, please reduce your message size and try again.",
            type="tokens",
            code="rate_limit_exceeded",
        ),
        "model_rate_limited",
        "move",
        "more than a minute's tokens in one request",
    ),
    _busy(
        "anthropic",
        529,
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    ),
    _busy("gemini", 503, [_nested("The model is overloaded.", code=503, status="UNAVAILABLE")]),
    _busy(
        "gemini",
        429,
        [_nested("You exceeded your current quota.", code=429, status="RESOURCE_EXHAUSTED")],
        "model_rate_limited",
        name="too many requests",
    ),
    _busy(
        "tgi",
        429,
        {"error": "Model is overloaded", "error_type": "overloaded"},
        "model_rate_limited",
    ),
    _busy(
        "openrouter",
        200,
        _nested("Provider returned error", code=502),
        "model_error",
        name="an error as the body of status 200",
    ),
    _stream(
        "overloaded",
        "openrouter",
        "an error inside the stream",
        Expected("model_error", "again"),
        {
            **delta("error", content=""),
            "error": {"code": 502, "message": "Provider disconnected"},
        },
        done=False,
    ),
    _stream(
        "overloaded",
        "tgi",
        "an error inside the stream",
        Expected("model_error", "again"),
        b'event: error\ndata: {"error": "Model is overloaded", "error_type": "overloaded"}\n\n',
    ),
)

POLICY = (
    _error(
        "policy",
        "azure",
        "the prompt was filtered",
        400,
        _nested(
            "The response was filtered.",
            code="content_filter",
            status=400,
            innererror={"code": "ResponsibleAIPolicyViolation"},
        ),
        "model_content_policy",
        "stop",
    ),
    _error(
        "request",
        "openai",
        "a parameter it does not take",
        400,
        _nested("Unsupported parameter: 'x'.", **_INVALID, code="unsupported_parameter"),
        "model_bad_request",
        "stop",
    ),
)

CUT = (
    _stream(
        "cut",
        "openai",
        "[DONE] without a finish reason",
        Expected("model_truncated", "restart", text="Half of"),
        delta(content="Half of"),
    ),
    _stream("cut", "openai", "[DONE] alone", Expected("model_truncated", "again")),
    _stream(
        "cut",
        "openai",
        "the connection ends",
        Expected("model_truncated", "restart", text="Half of"),
        delta(content="Half of"),
        done=False,
    ),
    _stream(
        "cut",
        "tgi",
        "an error that is no JSON, then [DONE]",
        Expected("model_error", "move", text="Half of"),
        delta(content="Half of"),
        b"event: error\ndata: worker died\n\n",
    ),
    _stream(
        "cut",
        "tgi",
        "an error that is no JSON, as the first event",
        Expected("model_error", "move"),
        b"event: error\ndata: worker died\n\n",
    ),
    *(
        _stream(
            "cut",
            provider,
            f"finish reason {reason}",
            Expected("model_error", "restart", text="Half of"),
            delta(content="Half of"),
            delta(reason),
        )
        for provider, reason in (
            ("openrouter", "error"),
            ("vllm", "abort"),
            ("deepseek", "insufficient_system_resource"),
        )
    ),
)


def _speech(provider: str, name: str, said: Expected, *data: object) -> Shape:
    return _stream("speech", provider, name, replace(said, finish="stop"), *data, delta("stop"))


SPEECH = (
    _speech("openai", "content", Expected(text="Hello"), delta(content="Hello")),
    _speech(
        "openai",
        "refusal",
        Expected(refusal="I can't help with that."),
        delta(role="assistant", content=None, refusal=""),
        delta(refusal="I can't help "),
        delta(refusal="with that."),
    ),
    _speech(
        "openai",
        "function_call",
        Expected(),
        delta(content=None, function_call={"name": "look_up", "arguments": ""}),
        delta(function_call={"arguments": "{}"}),
    ),
    _speech(
        "openai",
        "audio",
        Expected(),
        delta(audio={"id": "audio_1", "transcript": "Hel"}),
        delta(audio={"data": "AAAA"}),
    ),
    *(
        _speech(
            provider,
            name,
            Expected(reasoning="Well", text="Hi"),
            delta(content=None, **{name: "Well"}),
            delta(content="Hi"),
        )
        for provider, name in (
            ("deepseek", "reasoning_content"),
            ("groq", "reasoning"),
            ("sglang", "thinking"),
        )
    ),
    _speech(
        "openrouter",
        "reasoning_details",
        Expected(reasoning="Well", text="Hi"),
        delta(content="", reasoning_details=[{"type": "reasoning.text", "text": "Well"}]),
        delta(content="Hi"),
    ),
    _speech(
        "mistral",
        "thinking as parts of the content",
        Expected(reasoning="Well", text="Hi"),
        delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Well"}]}]),
        delta(content=[{"type": "text", "text": "Hi"}]),
    ),
)


def _call(**fields: Any) -> dict[str, Any]:
    """Make a chunk of one piece of a tool call; `name` and `arguments` are its function's."""
    names = ("name", "arguments")
    function = {name: fields[name] for name in names if name in fields}
    rest = {name: value for name, value in fields.items() if name not in names}
    return delta(tool_calls=[{**rest, "function": function}])


_TWO = (ToolCall("a", "sun", '{"at":1}'), ToolCall("b", "moon", '{"at":2}'))
_CALLED = Expected(calls=_TWO, finish="tool_calls")

CALLS = (
    _stream(
        "calls",
        "openai",
        "two calls by index",
        _CALLED,
        _call(index=0, id="a", type="function", name="sun", arguments=""),
        _call(index=0, arguments='{"at":1}'),
        _call(index=1, id="b", type="function", name="moon", arguments=""),
        _call(index=1, arguments='{"at":2}'),
        delta("tool_calls"),
    ),
    _stream(
        "calls",
        "gemini",
        "two calls that both have index 0",
        _CALLED,
        _call(index=0, id="a", type="function", name="sun", arguments='{"at":1}'),
        _call(index=0, id="b", type="function", name="moon", arguments='{"at":2}'),
        delta("tool_calls"),
    ),
    _stream(
        "calls",
        "ollama",
        "two calls of index 0 in one event",
        _CALLED,
        delta(
            tool_calls=[
                {"index": 0, "id": "a", "function": {"name": "sun", "arguments": '{"at":1}'}},
                {"index": 0, "id": "b", "function": {"name": "moon", "arguments": '{"at":2}'}},
            ]
        ),
        delta("tool_calls"),
    ),
    _stream(
        "calls",
        "vllm",
        "another id with every piece",
        Expected(calls=(ToolCall("a", "sun", '{"at":1}'),), finish="tool_calls"),
        _call(index=0, id="a", type="function", name="sun"),
        _call(index=0, id="x", type="function", arguments='{"at"'),
        _call(index=0, id="y", type="function", arguments=":1}"),
        delta("tool_calls"),
    ),
    _stream(
        "calls",
        "gemini",
        "pieces without an index",
        _CALLED,
        _call(id="a", name="sun", arguments='{"at"'),
        _call(arguments=":1}"),
        _call(id="b", name="moon", arguments='{"at"'),
        _call(arguments=":2}"),
        delta("tool_calls"),
    ),
    _stream(
        "calls",
        "gemini",
        "one name, no ids, index 0",
        Expected(
            calls=(ToolCall("", "sun", '{"at":1}'), ToolCall("", "sun", '{"at":2}')),
            finish="tool_calls",
        ),
        _call(index=0, id="", name="sun", arguments='{"at":1}'),
        _call(index=0, id="", name="sun", arguments='{"at":2}'),
        delta("tool_calls"),
    ),
)

_USED = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
_PARTLY = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
_COUNTED = Expected(text="Hi", finish="stop", usage=Usage(3, 2, 5))


def _alone(usage: object) -> dict[str, Any]:
    return {**delta(), "choices": [], "usage": usage}


USAGE = (
    _stream(
        "usage", "openai", "after the last choice", _COUNTED,
        {**delta(content="Hi"), "usage": None}, {**delta("stop"), "usage": None}, _alone(_USED),
    ),
    _stream(
        "usage", "deepseek", "with the finish reason", _COUNTED,
        delta(content="Hi"), {**delta("stop"), "usage": _USED},
    ),
    _stream(
        "usage", "vllm", "with the finish reason and again alone", _COUNTED,
        delta(content="Hi"), {**delta("stop"), "usage": _USED}, _alone(_USED),
    ),
    _stream(
        "usage", "vllm", "with every event", _COUNTED,
        {**delta(content="Hi"), "usage": _PARTLY}, {**delta("stop"), "usage": _USED},
        _alone(_USED),
    ),
    _stream(
        "usage", "groq", "under x_groq", _COUNTED,
        delta(content="Hi"), {**delta("stop"), "x_groq": {"id": "req_1", "usage": _USED}},
    ),
)  # fmt: skip

OBJECTS = (
    Shape(
        "one object although a stream was asked for",
        "ollama",
        "speech",
        200,
        json.dumps(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": "loop-1",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": "Hi"},
                        "finish_reason": "stop",
                    }
                ],
                "usage": _USED,
            },
            indent=1,
        ).encode(),
        _COUNTED,
    ),
    Shape(
        "one object that is cut",
        "ollama",
        "cut",
        200,
        b'{"object": "chat.completion", "choices": [{"index": 0, "message": {"content": "H',
        Expected("model_truncated", "again"),
    ),
)

SHAPES: tuple[Shape, ...] = (
    *CONTEXT_LENGTH, *NOT_SERVED, *OVERLOADED, *POLICY, *CUT, *SPEECH, *CALLS, *USAGE, *OBJECTS,
)  # fmt: skip
