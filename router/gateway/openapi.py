"""The gateway in the OpenAPI document: OpenAI's shapes, as far as the gateway reads them."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from router.gateway.refusals import RefusalBody
from router.http.openapi import answer, schema_of
from router.stack import EXCHANGE_HEADER, ROLE_HEADER

_KEY: Final = "GatewayKey"
_NOT_ANSWERED: Final[Mapping[int, str]] = {
    400: "The request is malformed, or the provider refuses it.",
    401: "The gateway's key is required.",
    404: "No such model, exchange or run.",
    408: "The body did not arrive in time.",
    409: "The effect is in doubt, or has been reported already.",
    410: "The run has been replaced, or its exchange has ended.",
    413: "The body is too large.",
    422: "The run plays a tape, and the call is not on it.",
    429: "The provider is rate limited; see retry-after.",
    502: "The provider failed, or broke off.",
    503: "The provider is not available.",
    504: "The provider took too long.",
}
_NOT_COMPLETED: Final = tuple(status for status in _NOT_ANSWERED if status not in {408, 409})
_BELOW: Final = "/exchanges/{exchange}"


def _parameter(name: str, place: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": description,
        "schema": {"type": "string"},
    }


_LEASE: Final = _parameter("lease", "path", "The lease under which it is performed.")
_SERVER: Final = _parameter("server", "path", "A name in `[gateway] tool_servers`.")
_EXCHANGE: Final = _parameter("exchange", "path", "An exchange that is open.")
_EXCHANGE_HEADERS: Final = [
    _parameter(
        EXCHANGE_HEADER.decode(),
        "header",
        "The exchange the call belongs to, from the router's request.",
    ),
    _parameter(
        ROLE_HEADER.decode(),
        "header",
        "`serving`, `fallback` or `shadow`, from the router's request.",
    ),
]
_MESSAGE: Final = {
    "type": "object",
    "description": "Passed on unread.",
    "required": ["role"],
    "properties": {
        "role": {"enum": ["developer", "system", "user", "assistant", "tool"]},
        "content": {"type": ["string", "array", "null"]},
    },
}
_REQUEST: Final = {
    "type": "object",
    "description": "A chat completion. Other fields are passed on as they are.",
    "required": ["model", "messages"],
    "properties": {
        "model": {"type": "string", "minLength": 1, "description": "The id of `[models.*]`."},
        "messages": {"type": "array", "minItems": 1, "items": _MESSAGE},
        "n": {"enum": [1, None]},
        "stream": {"type": ["boolean", "null"]},
        "stream_options": {
            "type": ["object", "null"],
            "properties": {"include_usage": {"type": ["boolean", "null"]}},
        },
    },
}
_COMPLETION: Final = {
    "type": "object",
    "required": ["object", "choices"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "chat.completion"},
        "model": {"type": "string"},
        "choices": {"type": "array", "minItems": 1, "maxItems": 1, "items": {"type": "object"}},
    },
}
_MODELS: Final = {
    "type": "object",
    "required": ["object", "data"],
    "properties": {
        "object": {"const": "list"},
        "data": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "object", "created", "owned_by"],
                "properties": {"id": {"type": "string"}, "owned_by": {"type": "string"}},
            },
        },
    },
}


def gateway_document(*, with_key: bool) -> dict[str, Any]:
    """Return the gateway's part of the OpenAPI document."""
    paths: dict[str, Any] = {}
    for below in ("", _BELOW):
        paths[f"{below}/v1/chat/completions"] = {"post": _completions(below)}
        paths[f"{below}/v1/models"] = {"get": _models(below)}
    if not with_key:
        return {"paths": paths}
    for operations in paths.values():
        for operation in operations.values():
            operation["security"] = [{_KEY: []}]
    key = {"type": "http", "scheme": "bearer", "description": "The key of `[gateway] key_env`."}
    return {"paths": paths, "components": {"securitySchemes": {_KEY: key}}}


def effects_document(asked: Any, answered: Any, report: Any) -> dict[str, Any]:
    """Return the effect API's part of the OpenAPI document, from the structs of its bodies."""
    paths: dict[str, Any] = {}
    for below in ("", _BELOW):
        begin = _operation(below, "effect", "Begin an effect, or get what came of it")
        begin["requestBody"] = {"required": True, "content": _json(schema_of(asked))}
        done = {"description": "What to do.", "content": _json(schema_of(answered))}
        begin["responses"] = {"200": done, **_effect_refusals(below, 422, 502)}
        told = _operation(below, "effect_report", "Report an effect")
        told["parameters"] = [*told["parameters"], _LEASE]
        told["requestBody"] = {"required": True, "content": _json(schema_of(report))}
        told["responses"] = {
            "204": {"description": "It is on the tape."},
            **_effect_refusals(below),
        }
        for path, operation in (("effects", begin), ("effects/{lease}", told)):
            operation["parameters"] = [*operation["parameters"], *_EXCHANGE_HEADERS]
            operation["security"] = [{_KEY: []}]
            paths[f"{below}/{path}"] = {"post": operation}
    return {"paths": paths}


def tool_servers_document() -> dict[str, Any]:
    """Return the tool gateway's part of the OpenAPI document; MCP describes the messages."""
    paths: dict[str, Any] = {}
    for below in ("", _BELOW):
        passed = _operation(below, "mcp", "Pass a message to an MCP server")
        passed["parameters"] = [*passed["parameters"], _SERVER, *_EXCHANGE_HEADERS]
        message = _json({"type": "object", "description": "One message of JSON-RPC."})
        passed["requestBody"] = {"required": True, "content": message}
        events = {"text/event-stream": {"schema": {"type": "string"}}}
        passed["responses"] = {
            "200": {"description": "The answer, after its progress.", "content": message | events},
            "202": {"description": "A notification was taken."},
            "406": {"description": "Both JSON and events must be acceptable.", "content": message},
            **{str(status): _refusal(status, below) for status in (401, 404, 408, 413, 503)},
        }
        wrong = {"description": "This is no message of MCP.", "content": message}
        passed["responses"]["400"] = wrong
        passed["security"] = [{_KEY: []}]
        paths[f"{below}/mcp/{{server}}"] = {"post": passed}
    return {"paths": paths}


def _effect_refusals(below: str, *more: int) -> dict[str, Any]:
    statuses = (400, 401, 404, 408, 409, 410, 413, 503, *more)
    return {str(status): _refusal(status, below) for status in sorted(statuses)}


def _completions(below: str) -> dict[str, Any]:
    described = _operation(below, "completions", "Chat completion through the gateway")
    described["parameters"] += _EXCHANGE_HEADERS
    described["requestBody"] = {"required": True, "content": _json(_REQUEST)}
    described["responses"] |= {
        "200": {
            "description": "As OpenAI's, in one piece or as events.",
            "content": _json(_COMPLETION) | {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **{str(status): _refusal(status, below) for status in _NOT_COMPLETED},
    }
    return described


def _models(below: str) -> dict[str, Any]:
    described = _operation(below, "models", "Models of the gateway")
    described["responses"] |= {
        "200": {"description": "The registered models.", "content": _json(_MODELS)},
        **{str(status): _refusal(status, below) for status in (401, 404)},
    }
    return described


def _operation(below: str, what: str, summary: str) -> dict[str, Any]:
    return {
        "tags": ["gateway"],
        "summary": summary,
        "operationId": f"gateway_{what}_of_exchange" if below else f"gateway_{what}",
        "parameters": [_EXCHANGE] if below else [],
        "responses": {},
    }


def _refusal(status: int, below: str) -> dict[str, Any]:
    content = _json(schema_of(RefusalBody))
    if below and status == HTTPStatus.NOT_FOUND:
        # A path without an exchange's id is the application's own 404.
        content |= answer(status)["content"]
    return {"description": _NOT_ANSWERED[status], "content": content}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
