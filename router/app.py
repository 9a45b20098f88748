"""The application: the flows' endpoints, their further operations, feedback, operators' routes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from cutover.errors import Refused
from cutover.flow import Flow, Operation
from cutover.flow_spec import decoded
from router.breaker import Breaker, BreakerSettings
from router.captures import Captures
from router.driver import Candidate
from router.edge import client_request, guard, problem, refused
from router.endpoint import FlowEndpoint, FlowSettings, Pin, Streams
from router.exchange import Served
from router.pauses import PausedExchanges
from router.shadow import Shadows
from router.telemetry.metrics import Telemetry
from router.telemetry.operators import routes
from router.telemetry.status import Operating, Process

log = logging.getLogger(__name__)

ENDING_SECONDS, SHADOWS_END_SECONDS = 30.0, 5.0
"""How long a stopping server waits for exchanges to settle, and for cancelled shadows to close."""

Perform = Callable[[Mapping[str, str], Any], Awaitable[Any]]
"""Performs an operation: with the arguments in its path and its decoded body."""


@dataclass(frozen=True, slots=True)
class ServedFlow:
    """A flow as it is served: its stacks by name, and what performs its further operations."""

    spec: Flow
    stacks: Mapping[str, Candidate]
    settings: Callable[[], FlowSettings]
    operations: Mapping[str, Perform] = field(default_factory=dict)


class FeedbackRequest(msgspec.Struct, frozen=True):
    """Body of `POST /feedback`."""

    exchange_id: Annotated[str, msgspec.Meta(max_length=64)]
    score: int
    comment: str = ""

    def __post_init__(self) -> None:
        if self.score not in {-1, 0, 1}:
            message = "score is -1, 0 or 1"
            raise ValueError(message)


def create_app(
    flows: list[ServedFlow],
    pauses: PausedExchanges,
    feedback: Callable[[str, Any, str], Awaitable[None]],
    pin: Pin,
    operating: Operating,
    *,
    streams: int,
    origins: Collection[str] = (),
    breaker: BreakerSettings,
    shadows: Shadows,
    captures: Captures | None = None,
) -> FastAPI:
    """Return the application; its own documentation pages, which load scripts, are off.

    `streams` may be open at once; pages of `origins` may use the flows.
    """
    places = Streams(streams)
    shadows.gate.hurried = places.hurried
    breakers = {flow.spec.name: {name: Breaker(breaker) for name in flow.stacks} for flow in flows}
    process = Process(
        {flow.spec.name: flow.settings for flow in flows},
        breakers,
        places,
        shadows,
        operating,
        captures,
    )
    telemetry = Telemetry(process)

    def observe(exchange: Served) -> None:
        for one in (telemetry.observe, *operating.observers):
            try:
                one(exchange)
            except Exception:
                log.exception("exchange=%s not counted", exchange.id)

    ending: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        running = [asyncio.create_task(one) for one in (shadows.run(), process.watch_loop())]
        yield
        if ending:
            await asyncio.wait(set(ending), timeout=ENDING_SECONDS)
        for one in running:
            one.cancel()
        await asyncio.wait(running, timeout=SHADOWS_END_SECONDS)

    # A redirect to the path without its slash would name whatever host the client named.
    app = FastAPI(openapi_url=None, redirect_slashes=False, lifespan=lifespan)
    for flow in flows:
        endpoint = FlowEndpoint(
            flow.spec,
            flow.stacks,
            flow.settings,
            pauses,
            shadows,
            ending,
            places,
            breakers[flow.spec.name],
            pin,
            observe,
            captures,
        )
        for path, methods in flow.spec.routes.items():
            app.router.routes.append(Route(path, endpoint, methods=list(methods)))
        for operation in flow.spec.operations:
            app.router.routes.append(_operation(operation, flow.operations[operation.perform]))

    async def post_feedback(_: Mapping[str, str], body: FeedbackRequest) -> None:
        await feedback(body.exchange_id, body.score, body.comment)

    receiving = Operation("POST", "/feedback", "", FeedbackRequest)
    app.router.routes.append(_operation(receiving, post_feedback))

    @app.exception_handler(Exception)
    async def failed(_: HttpRequest, __: Exception) -> Response:
        """Answer what no one foresaw, such as a store that is down: logged, and never its text."""
        return problem(500, "internal")

    app.router.routes += routes(process, telemetry)
    guard(app, origins)
    app.state.telemetry = telemetry
    app.state.process = process
    app.state.drain = places.drain
    return app


def _operation(operation: Operation, perform: Perform) -> Route:
    async def handle(request: HttpRequest) -> Response:
        try:
            body = None
            if operation.body is not None:
                asked = await client_request(request.scope, request.receive, {})
                body = decoded(asked, operation.body)
            result = await perform(request.path_params, body)
        except Refused as error:
            return refused(error)
        if result is None:
            return Response(status_code=204)
        return Response(msgspec.json.encode(result), media_type="application/json")

    return Route(operation.path, handle, methods=[operation.method])
