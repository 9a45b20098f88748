"""The HTTP application: the flows, feedback, health and metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.utils import deep_dict_update
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from contract.flow import SessionStore
from contract.records import Score
from router.http.connection import BodyMemory
from router.http.endpoints import FlowEndpoint, operation_routes, read_json
from router.http.openapi import answer, body_of, flow_operations
from router.problems import CONTENT_TYPE, Problem, word
from router.router import Router
from router.stack import EXCHANGE_HEADER

MetricsPage = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Writes the metrics for an `accept` header; returns the body and its media type."""


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /feedback`."""

    exchange_id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    score: Score
    comment: Annotated[str, msgspec.Meta(max_length=8_192, pattern=r"^[^\x00]*\Z")] | None = None


_UNROUTED = frozenset({404, 405})
_OWN_PATHS = ("/admin/", "/metrics")
_feedback = msgspec.json.Decoder(Feedback)


class _Application(FastAPI):
    """FastAPI for everything but flows, for which its nine layers cost too much.

    Other methods on a flow's path go through them. `state.document` is the part of the OpenAPI
    document that FastAPI cannot see; endpoints that are added later add theirs. Pages that show
    the document are left out: theirs load scripts from elsewhere.
    """

    def __init__(
        self,
        flows: Mapping[str, FlowEndpoint],
        origins: Sequence[str],
        title: str = "cutover",
    ) -> None:
        super().__init__(title=title, docs_url=None, redoc_url=None)
        self.state.document = {}
        self._shared: ASGIApp = super().__call__
        self._flows: dict[str, ASGIApp] = {
            path: ServerErrorMiddleware(endpoint, handler=_problem)
            for path, endpoint in flows.items()
        }
        if origins:
            shared = partial(
                CORSMiddleware,
                allow_origins=origins,
                allow_methods=("GET", "POST", "DELETE"),
                allow_headers=("*",),
                allow_credentials="*" not in origins,
                expose_headers=("retry-after", EXCHANGE_HEADER.decode()),
            )
            self._shared = shared(self._shared)
            self._flows = {path: shared(flow) for path, flow in self._flows.items()}
        for path, endpoint in flows.items():
            self.router.routes.append(Route(path, endpoint, methods=["POST"]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; pages of other origins may ask for all but the operations."""
        answer = self._shared
        if scope["type"] == "http":
            if scope["path"].startswith(_OWN_PATHS):
                answer = super().__call__
            elif scope["method"] == "POST":
                answer = self._flows.get(scope["path"], answer)
        await answer(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            deep_dict_update(super().openapi(), self.state.document)
        return self.openapi_schema or {}


def create_app(
    router: Router,
    faults: Callable[[], Mapping[str, str]],
    metrics: MetricsPage | None = None,
    sessions: Callable[[str], SessionStore] | None = None,
) -> FastAPI:
    """Build the application; `faults` returns what is wrong right now, by part.

    `sessions` returns what the store calls of a flow reach. `app.state.body_memory` is shared with
    endpoints that are added later.
    """
    memory = BodyMemory(router.settings, router.admission.count_shed)
    origins = router.settings().server.cors_origins
    app = _Application(dict(_flow_endpoints(router, memory)), origins)
    for spec in router.served_flows.values():
        stored = sessions(spec.name) if sessions is not None else None
        app.router.routes.extend(operation_routes(router, memory, stored, spec))
        for path, method, described in flow_operations(spec):
            deep_dict_update(app.state.document, {"paths": {path: {method: described}}})
    app.state.body_memory = memory
    _add_feedback(app, router, memory)
    _add_health(app, router, faults)
    if metrics is not None:
        _add_metrics(app, metrics)
    _answer_errors(app, served=_paths_of(router))
    return app


def create_bare_app(title: str, memory: BodyMemory) -> FastAPI:
    """Build an application without routes, for endpoints that are added later."""
    app = _Application({}, (), title)
    app.state.body_memory = memory
    _answer_errors(app)
    return app


def _answer_errors(app: FastAPI, served: str = "") -> None:
    answered = partial(_problem, served=served)
    for kind in (Problem, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answered)


def _flow_endpoints(router: Router, memory: BodyMemory) -> Iterator[tuple[str, FlowEndpoint]]:
    """Yield the endpoints that stream, with their paths."""
    for spec in router.served_flows.values():
        for path in spec.requests:
            yield path, FlowEndpoint(router, memory, spec, path)
        if spec.pausing is not None:
            continuing = spec.pausing.resume
            yield continuing.path, FlowEndpoint(router, memory, spec, continuing=continuing)


def _add_feedback(app: FastAPI, router: Router, memory: BodyMemory) -> None:
    @app.post(
        "/feedback",
        status_code=202,
        response_class=Response,
        responses={status: answer(status) for status in (400, 404, 408, 413, 422, 429, 500, 503)},
        openapi_extra={"requestBody": body_of(Feedback)},
    )
    async def feedback(request: Request) -> Response:
        """Record a user's feedback on an answer, named by its x-cutover-exchange header.

        The last one on an answer counts.
        """
        limit = router.settings().server.max_body_bytes
        body: Feedback = await read_json(memory, request, _feedback, limit)
        router.feedback(body.exchange_id, body.score, body.comment)
        return Response(status_code=202)


def _add_health(app: FastAPI, router: Router, faults: Callable[[], Mapping[str, str]]) -> None:
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Report that the process lives."""
        return {"status": "alive"}

    @app.get(
        "/readyz",
        response_model=None,
        responses={503: {"description": "The router is shutting down."}},
    )
    async def readyz() -> JSONResponse:
        """Report whether requests are taken, and what does not work as configured."""
        found = dict(faults())
        status = "stopping" if router.draining else "degraded" if found else "ready"
        return JSONResponse(
            {"status": status, "faults": found, **_summary(router)},
            status_code=503 if router.draining else 200,
        )


def _add_metrics(app: FastAPI, page: MetricsPage) -> None:
    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics(request: Request) -> Response:
        """Report to Prometheus."""
        body, media_type = await page(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": media_type})


def _summary(router: Router) -> dict[str, Any]:
    """Return stages and shares of the flows, and what was done since the start."""
    shares = {name: router.shares.of(name) for name in router.settings().flows}
    ledger, shadows = router.ledger, router.shadows
    lines = [
        {"flow": line.flow, "state": line.state, "reason": line.reason, "count": count}
        for line, count in sorted(ledger.counts.items(), key=str)
    ]
    return {
        "stages": {name: share.stage for name, share in shares.items()},
        "shares": msgspec.to_builtins(shares),
        "counts": asdict(router.counts),
        "shed": router.admission.shed,
        "captures": asdict(router.recorder.captures.counts),
        "ledger": {"open": ledger.open, "waiting": shadows.waiting, "lines": lines},
    }


async def _problem(request: Request, error: Exception, *, served: str = "") -> Response:
    """Return any error as a problem; the framework raises unexpected ones again.

    A request that no endpoint takes is told which paths are `served`.
    """
    headers: Mapping[str, str] | None = None
    match error:
        case Problem():
            problem = error
            headers = {name.decode(): value.decode() for name, value in problem.headers()}
        case RequestValidationError():
            # Not its text, which repeats what was sent.
            problem = Problem(422, "invalid_request", "a parameter is not valid")
        case HTTPException():
            status, own = error.status_code, request.url.path.startswith(_OWN_PATHS)
            detail = f"served are {served}" if served and status in _UNROUTED and not own else ""
            problem = Problem(status, word(status), detail)
            headers = error.headers
        case _:
            problem = Problem(500, "internal")
    return Response(problem.body(), problem.status, headers, CONTENT_TYPE.decode())


def _paths_of(router: Router) -> str:
    """List the paths of the flows that are served here."""
    paths = sorted(path for spec in router.served_flows.values() for path in spec.requests)
    return ", ".join(f"POST {path}" for path in paths)
