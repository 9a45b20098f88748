"""The HTTP application: the flows, feedback and health."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from router.http import FlowEndpoint, decode, read_body
from router.problems import CONTENT_TYPE, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from contract.flow import FlowSpec
    from router.dispatch import Router


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /feedback`."""

    exchange_id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    score: Literal[-1, 0, 1]
    comment: Annotated[str, msgspec.Meta(max_length=8_192, pattern=r"^[^\x00]*\Z")] | None = None


_feedback = msgspec.json.Decoder(Feedback)


def create_app(router: Router, faults: Callable[[], Mapping[str, str]]) -> FastAPI:
    """Build the application; `faults` says what is wrong right now, by part."""
    app = FastAPI(title="cutover")
    for spec in router.parts.specs.values():
        app.router.routes.append(Route(spec.path, FlowEndpoint(router, spec), methods=["POST"]))

    async def feedback(request: Request) -> Response:
        """Keep what a user thought of an answer."""
        limit = router.parts.settings().server.max_body_bytes
        body = await read_body(request.scope, request.receive, limit)
        given = decode(_feedback, body)
        router.feedback(given.exchange_id, given.score, given.comment)
        return Response(status_code=202)

    async def healthz() -> dict[str, str]:
        """Say that the process lives."""
        return {"status": "alive"}

    async def readyz() -> JSONResponse:
        """Say whether requests are welcome, and what does not work as configured."""
        found = dict(faults())
        status = "stopping" if router.draining else "degraded" if found else "ready"
        return JSONResponse(
            {"status": status, "faults": found, **_books(router)},
            status_code=503 if router.draining else 200,
        )

    app.add_api_route("/feedback", feedback, methods=["POST"], status_code=202)
    app.add_api_route("/healthz", healthz, methods=["GET"])
    app.add_api_route("/readyz", readyz, methods=["GET"], response_model=None)
    app.add_exception_handler(Problem, _problem)
    document(app, router.parts.specs)
    return app


def _books(router: Router) -> dict[str, Any]:
    """Tell the stages and what has been done since the start."""
    ledger = router.ledger
    lines = [
        {"flow": line.flow, "state": line.state, "reason": line.reason, "count": count}
        for line, count in sorted(ledger.counts.items(), key=str)
    ]
    return {
        "stages": {name: flow.stage for name, flow in router.parts.settings().flows.items()},
        "counts": asdict(router.counts),
        "captures": asdict(router.parts.captures.counts),
        "ledger": {"open": ledger.open, "waiting": router.shadows_waiting, "lines": lines},
    }


async def _problem(_: Request, error: Exception) -> Response:
    problem = error if isinstance(error, Problem) else Problem(500, "internal")
    return Response(problem.body(), problem.status, media_type=CONTENT_TYPE.decode())


def document(app: FastAPI, specs: Mapping[str, FlowSpec]) -> None:
    """Add what FastAPI cannot see to the OpenAPI document: the flows' bodies and answers."""
    build = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = build()
            for spec in specs.values():
                schema["paths"][spec.path] = {"post": _operation(spec)}
            schema["paths"]["/feedback"]["post"]["requestBody"] = _body(Feedback)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign] # FastAPI's documented way to extend it


def _operation(spec: FlowSpec) -> dict[str, Any]:
    problem = {
        "description": "Refused or failed before the first frame.",
        "content": {CONTENT_TYPE.decode(): {}},
    }
    return {
        "summary": f"Flow {spec.name}",
        "requestBody": _body(spec.request),
        "responses": {
            "200": {"description": "A stream of events.", "content": {"text/event-stream": {}}},
            **{str(status): problem for status in (400, 404, 409, 413, 422, 500, 503)},
        },
    }


def _body(struct: type[msgspec.Struct]) -> dict[str, Any]:
    schemas, components = msgspec.json.schema_components(
        [struct], ref_template="#/components/schemas/{name}"
    )
    inlined = components[struct.__name__] if "$ref" in schemas[0] else schemas[0]
    return {
        "required": True,
        "content": {"application/json": {"schema": _inline(inlined, components)}},
    }


def _inline(schema: Any, components: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _inline(components[schema["$ref"].rsplit("/", 1)[1]], components)
        return {key: _inline(value, components) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_inline(value, components) for value in schema]
    return schema
