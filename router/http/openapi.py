"""What the OpenAPI document says of flows and problems: written from their structs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from router.problems import CONTENT_TYPE, ProblemBody

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.flow import FlowSpec

_PYTHON_END = re.compile(r"\\Z$")
"""The end of a text in Python's regular expressions; in JSON Schema's, ECMA 262's, it is `$`."""

_NO_WORD = re.compile(r"\W+")

_TYPES = {"sse": "text/event-stream", "ndjson": "application/x-ndjson"}
_OF_FLOWS = (400, 404, 408, 409, 413, 422, 429, 500, 503)
_MEANINGS = {
    400: "The body is not JSON, or not whole.",
    401: "No token was sent.",
    403: "The token is unknown.",
    404: "What the request names is unknown.",
    408: "The body did not come in time.",
    409: "Another request is under way, or the id belongs to something else.",
    410: "The question is not open any more.",
    413: "The body is too large.",
    422: "The body is JSON, but not what is due.",
    429: "Too many requests.",
    500: "No stack could serve.",
    503: "No place or no stack is left, something outside is not available, or it shuts down.",
}


def operation(spec: FlowSpec, path: str, request: Any) -> dict[str, Any]:
    """Describe a flow's endpoint at one of its paths."""
    stream = {_TYPES[spec.dialect.framing]: {"schema": {"type": "string"}}}
    return {
        "summary": f"Flow {spec.name}",
        "operationId": identifier(spec, path, "post"),
        "requestBody": body_of(request),
        "responses": {
            "200": {"description": "A stream of events.", "content": stream},
            **{str(status): answer(status) for status in _OF_FLOWS},
        },
    }


def identifier(spec: FlowSpec, path: str, method: str) -> str:
    """Name what is asked of a flow at a path."""
    words = "" if path == spec.path else _NO_WORD.sub("_", path).rstrip("_")
    return f"{spec.name}{words}_{method}"


def answer(status: int) -> dict[str, Any]:
    """Describe a problem as an answer."""
    content = {CONTENT_TYPE.decode(): {"schema": _schema(ProblemBody)}}
    return {"description": _MEANINGS[status], "content": content}


def page_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Describe an answer in JSON."""
    content = {"application/json": {"schema": _schema(struct)}}
    return {"description": (struct.__doc__ or "").partition("\n")[0], "content": content}


def body_of(struct: Any) -> dict[str, Any]:
    """Describe a request's body."""
    return {"required": True, "content": {"application/json": {"schema": _schema(struct)}}}


def _schema(struct: Any) -> Any:
    (root,), components = msgspec.json.schema_components([struct], ref_template="{name}")
    return _inline(root, components)


def _inline(schema: Any, components: Mapping[str, Any]) -> Any:
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _inline(components[schema["$ref"]], components)
        inlined = {key: _inline(value, components) for key, value in schema.items()}
        if isinstance(pattern := inlined.get("pattern"), str):
            inlined["pattern"] = _PYTHON_END.sub("$", pattern)
        return inlined
    if isinstance(schema, list):
        return [_inline(value, components) for value in schema]
    return schema
