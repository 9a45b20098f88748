"""The OpenAPI document's part on flows and problems, made from their structs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from contract.flow import FlowSpec
from router.problems import CONTENT_TYPE, ProblemBody

ID_LENGTH = 128
"""Characters of an id in a path, at most."""

_PYTHON_END = re.compile(r"\\Z$")
"""The end of a text in Python's regular expressions; in JSON Schema's, ECMA 262's, it is `$`."""

_NO_WORD = re.compile(r"\W+")

_TYPES = {"sse": "text/event-stream", "ndjson": "application/x-ndjson", "text": "text/plain"}
_OF_FLOWS: tuple[int, ...] = (400, 404, 408, 409, 413, 422, 429, 500, 503)
_OUTLINED, _OUTLINE = 1, 240
"""How deep the fields of a request are outlined, and in how many characters."""
_OF_ANSWERS = (400, 404, 408, 409, 410, 413, 422, 500, 503)
_OF_STORES = (404, 409, 422, 500, 503)
_MEANINGS = {
    400: "The body is not JSON, or incomplete.",
    401: "No token was sent.",
    403: "The token is unknown.",
    404: "What the request names is unknown.",
    408: "The body did not arrive in time.",
    409: "Another request is under way, or the id belongs to something else.",
    410: "The question is not open any more.",
    413: "The body is too large.",
    422: "The body is JSON, but not a valid request.",
    429: "Too many requests.",
    500: "No stack could serve.",
    503: "No slot or no stack is free, a dependency is not available, or the router shuts down.",
}


class AnswerStored(msgspec.Struct, frozen=True):
    """The answer is stored: the exchange can be resumed."""

    hitl_id: str
    status: str = "answered"


def flow_operations(spec: FlowSpec) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Describe what a flow answers: path, method, operation."""
    stream = {_TYPES[spec.dialect.framing]: {"schema": {"type": "string"}}}
    events = {"description": "A stream of events.", "content": stream}
    posts = [(path, request, events, _OF_FLOWS) for path, request in spec.requests.items()]
    if spec.pausing is not None:
        resume, respond = spec.pausing.resume, spec.pausing.respond
        posts.append((resume.path, resume.request, events, (*_OF_FLOWS, 410)))
        if respond is not None:
            posts.append((respond.path, respond.request, page_of(AnswerStored), _OF_ANSWERS))
    for path, request, good, problems in posts:
        described = _operation(spec, path, "post", good, problems)
        yield path, "post", described | {"requestBody": body_of(request)}
    for call in spec.store_endpoints:
        method = call.method.lower()
        good = {"description": "Done."} if call.reply is None else page_of(call.reply)
        described = _operation(spec, call.path, method, good, _OF_STORES)
        names = [part[1:-1] for part in call.path.split("/") if part.startswith("{")]
        yield call.path, method, described | {"parameters": [_parameter(name) for name in names]}


def _operation(
    spec: FlowSpec, path: str, method: str, good: dict[str, Any], problems: tuple[int, ...]
) -> dict[str, Any]:
    words = "" if path == spec.path else _NO_WORD.sub("_", path).rstrip("_")
    status = "200" if "content" in good else "204"
    return {
        "summary": f"Flow {spec.name}",
        "operationId": f"{spec.name}{words}_{method}",
        "responses": {status: good, **{str(one): answer(one) for one in problems}},
    }


def _parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": ID_LENGTH}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def answer(status: int) -> dict[str, Any]:
    """Describe a problem as an answer."""
    content = {CONTENT_TYPE.decode(): {"schema": schema_of(ProblemBody)}}
    return {"description": _MEANINGS[status], "content": content}


def page_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Describe an answer in JSON."""
    content = {"application/json": {"schema": schema_of(struct)}}
    return {"description": (struct.__doc__ or "").partition("\n")[0], "content": content}


def body_of(struct: Any) -> dict[str, Any]:
    """Describe a request's body."""
    return {"required": True, "content": {"application/json": {"schema": schema_of(struct)}}}


def outline_of(struct: Any, example: str = "") -> str:
    """Return the fields of a request with their types on one line; `?` marks optional ones.

    Of requests that may be any object they are those of an example, without its values.
    """
    if example:
        outline = _outline_of_value(msgspec.json.decode(example), 0)
    else:
        outline = _outline_of_schema(schema_of(struct), 0)
    return outline if len(outline) <= _OUTLINE else f"{outline[: _OUTLINE - 1]}…"


def _outline_of_schema(schema: Mapping[str, Any], depth: int) -> str:
    kinds = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    first = kinds[0] if kinds else {}
    fields = first.get("properties")
    if not fields or depth > _OUTLINED:
        return "any" if "type" not in first else f"{first['type']}"
    required = first.get("required", ())
    parts = [
        f'"{name}"{"" if name in required else "?"}: {_outline_of_schema(held, depth + 1)}'
        for name, held in sorted(fields.items(), key=lambda field: field[0] not in required)
    ]
    return f"{{{', '.join(parts)}}}"


def _outline_of_value(value: Any, depth: int) -> str:
    match value:
        case dict() if value and depth <= _OUTLINED:
            held = (f'"{key}": {_outline_of_value(it, depth + 1)}' for key, it in value.items())
            return f"{{{', '.join(held)}}}"
        case dict():
            return "object"
        case list():
            return "array"
        case bool():
            return "boolean"
        case str():
            return "string"
        case None:
            return "null"
        case _:
            return "number"


def schema_of(struct: Any) -> Any:
    """Return the JSON Schema of a struct, without references; the caller may change it."""
    return _inline(*_components_of(struct))


# A problem is described for each status of each path: msgspec would evaluate its annotations
# again. The limit lets go of the structs of declared flows that are gone.
@lru_cache(maxsize=64)
def _components_of(struct: Any) -> tuple[Any, Mapping[str, Any]]:
    (root,), components = msgspec.json.schema_components([struct], ref_template="{name}")
    return root, components


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
