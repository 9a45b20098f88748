"""The HTTP application: the flows, feedback and health."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from router.http.endpoints import ContinuingEndpoint, FlowEndpoint, decode, documents, routes
from router.openapi import answer, body_of, operation
from router.problems import CONTENT_TYPE, Problem, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from starlette.types import Receive, Scope, Send

    from contract.flow import FlowSpec
    from router.router import Router
    from router.telemetry.metrics.page import Page


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /feedback`."""

    exchange_id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    score: Literal[-1, 0, 1]
    comment: Annotated[str, msgspec.Meta(max_length=8_192, pattern=r"^[^\x00]*\Z")] | None = None


_feedback = msgspec.json.Decoder(Feedback)


class _Application(FastAPI):
    """FastAPI for everything but flows: its nine layers cost a tenth of what an endpoint does.

    What else is asked of a flow's path, as another method, goes through them.
    """

    def __init__(self, flows: Mapping[str, FlowEndpoint]) -> None:
        super().__init__(title="cutover")
        self._flows = {
            path: ServerErrorMiddleware(endpoint, handler=_problem)
            for path, endpoint in flows.items()
        }
        for path, endpoint in flows.items():
            self.router.routes.append(Route(path, endpoint, methods=["POST"]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        asked = scope["type"] == "http" and scope["method"] == "POST"
        flow = self._flows.get(scope["path"]) if asked else None
        await (flow or super().__call__)(scope, receive, send)


def create_app(
    router: Router,
    faults: Callable[[], Mapping[str, str]],
    metrics: Page | None = None,
) -> FastAPI:
    """Build the application; `faults` says what is wrong right now, by part."""
    app = _Application(dict(_flows(router)))
    for spec in router.served.values():
        app.router.routes.extend(routes(router, spec))
    app.state.bodies = router.bodies

    async def feedback(request: Request) -> Response:
        """Keep what a user thought of an answer."""
        limit = router.parts.settings().server.max_body_bytes
        body = await router.bodies.read(request.scope, request.receive, limit)
        given = decode(_feedback, body)
        router.feedback(given.exchange_id, given.score, given.comment)
        return Response(status_code=202)

    async def readyz() -> JSONResponse:
        """Say whether requests are welcome, and what does not work as configured."""
        found = dict(faults())
        status = "stopping" if router.draining else "degraded" if found else "ready"
        return JSONResponse(
            {"status": status, "faults": found, **_books(router)},
            status_code=503 if router.draining else 200,
        )

    app.add_api_route(
        "/feedback",
        feedback,
        methods=["POST"],
        status_code=202,
        response_class=Response,
        responses={status: answer(status) for status in (400, 408, 413, 422, 500, 503)},
    )
    app.add_api_route("/healthz", _healthz, methods=["GET"], name="healthz")
    app.add_api_route(
        "/readyz",
        readyz,
        methods=["GET"],
        response_model=None,
        responses={503: {"description": "The router is shutting down."}},
    )
    if metrics is not None:
        _add_metrics(app, metrics)
    for kind in (Problem, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _problem)
    document(app, router.served)
    return app


def _flows(router: Router) -> Iterator[tuple[str, FlowEndpoint]]:
    """Give every path at which a flow is asked for a stream."""
    for spec in router.served.values():
        for path in spec.requests:
            yield path, FlowEndpoint(router, spec, path)
        if spec.continue_endpoint is not None:
            yield (
                spec.continue_endpoint.path,
                ContinuingEndpoint(router, spec, spec.continue_endpoint),
            )


async def _healthz() -> dict[str, str]:
    """Say that the process lives."""
    return {"status": "alive"}


def _add_metrics(app: FastAPI, page: Page) -> None:
    async def metrics(request: Request) -> Response:
        """Tell Prometheus."""
        body, media_type = await page.write(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": media_type})

    app.add_api_route("/metrics", metrics, methods=["GET"], response_class=PlainTextResponse)


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
        "shed": router.admission.shed,
        "captures": asdict(router.parts.captures.counts),
        "ledger": {"open": ledger.open, "waiting": router.shadows_waiting, "lines": lines},
    }


async def _problem(_: Request, error: Exception) -> Response:
    """Tell any error as a problem; what nobody foresaw is raised again by the framework."""
    headers: Mapping[str, str] | None = None
    match error:
        case Problem():
            problem = error
            headers = {name.decode(): value.decode() for name, value in problem.headers()}
        case RequestValidationError():
            # Not its text, which repeats what was sent.
            problem = Problem(422, "invalid_request", "a parameter is not what is due")
        case HTTPException():
            problem = Problem(error.status_code, word(error.status_code))
            headers = error.headers
        case _:
            problem = Problem(500, "internal")
    media_type = CONTENT_TYPE.decode()
    return Response(problem.body(), problem.status, headers, media_type)


def document(app: FastAPI, specs: Mapping[str, FlowSpec]) -> None:
    """Add what FastAPI cannot see to the OpenAPI document: the flows, and the bodies."""
    build = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = build()
            for spec in specs.values():
                _document(schema["paths"], spec)
            schema["paths"]["/feedback"]["post"]["requestBody"] = body_of(Feedback)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign] # FastAPI's documented way to extend it


def _document(paths: dict[str, Any], spec: FlowSpec) -> None:
    for path, request in spec.requests.items():
        paths[path] = {"post": operation(spec, path, request)}
    going_on = spec.continue_endpoint
    if going_on is not None:
        described = operation(spec, going_on.path, going_on.request)
        described["responses"]["410"] = answer(410)
        paths[going_on.path] = {"post": described}
    for path, method, described in documents(spec):
        paths.setdefault(path, {})[method] = described
