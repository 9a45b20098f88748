"""What flows offer beside their streams, over HTTP: answers to questions, calls to the stores."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from contract.errors import EffectFailed, Refused
from router.http import decode
from router.openapi import answer, body_of, identifier, page_of
from router.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

    from contract.flow import AnswerEndpoint, FlowSpec, StoreEndpoint
    from router.dispatch import Router

_JSON = "application/json"
_OF_ANSWERS = (400, 404, 408, 409, 410, 413, 422, 500, 503)
_OF_CALLS = (404, 409, 422, 500, 503)
_MOST_OF_AN_ARGUMENT = 128
"""Characters of an id in a path, as in a body."""
_ARGUMENT = re.compile(rf"[^\x00-\x1f]{{1,{_MOST_OF_AN_ARGUMENT}}}\Z")


class Answered(msgspec.Struct, frozen=True):
    """The answer is kept: the exchange can go on."""

    hitl_id: str
    status: str = "answered"


def routes(router: Router, spec: FlowSpec) -> Iterator[Route]:
    """Give the routes of a flow that are no streams."""
    if spec.responding is not None:
        respond = _respond(router, spec, spec.responding)
        yield Route(spec.responding.path, respond, methods=["POST"])
    for call in spec.calls:
        # An id may hold a slash, which arrives as one however it was written.
        path = call.path.replace("}", ":path}")
        yield Route(path, _call(router, call), methods=[call.method])


def documents(spec: FlowSpec) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Describe them for the OpenAPI document: path, method, operation."""
    if spec.responding is not None:
        path = spec.responding.path
        yield (
            path,
            "post",
            _described(spec, path, "post", page_of(Answered), _OF_ANSWERS)
            | {"requestBody": body_of(spec.responding.request)},
        )
    for call in spec.calls:
        method = call.method.lower()
        good = {"description": "Done."} if call.reply is None else page_of(call.reply)
        yield (
            call.path,
            method,
            _described(spec, call.path, method, good, _OF_CALLS)
            | {"parameters": [_parameter(name) for name in _names(call.path)]},
        )


def _respond(router: Router, spec: FlowSpec, responding: AnswerEndpoint) -> Any:
    decoder = msgspec.json.Decoder(responding.request)

    async def respond(request: Request) -> Response:
        """Keep the answer to a question."""
        limit = router.parts.settings().server.max_body_bytes
        body = await router.bodies.read(request.scope, request.receive, limit)
        asked = decode(decoder, body)
        hitl_id = responding.hitl_id(asked)
        await router.respond(spec, hitl_id, responding.answer(asked))
        return Response(msgspec.json.encode(Answered(hitl_id)), media_type=_JSON)

    return respond


def _call(router: Router, call: StoreEndpoint) -> Any:
    async def perform(request: Request) -> Response:
        """Ask the stores."""
        sessions = router.parts.sessions
        if sessions is None:
            raise Problem(503, "not_kept", "nothing is kept here")
        try:
            reply = await call.perform(sessions, _arguments(request))
        except Refused as refused:
            raise Problem(refused.status, refused.code, refused.detail) from refused
        except EffectFailed as failure:
            raise Problem(503, failure.fault.code, retry_after=1) from failure
        if reply is None:
            return Response(status_code=204)
        return Response(msgspec.json.encode(reply), media_type=_JSON)

    return perform


def _arguments(request: Request) -> dict[str, str]:
    given = {name: str(value) for name, value in request.path_params.items()}
    for name, value in given.items():
        if _ARGUMENT.match(value) is None:
            raise Problem(422, "invalid_request", f"{name} is no id")
    return given


def _names(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def _parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": _MOST_OF_AN_ARGUMENT}
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
