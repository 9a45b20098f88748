"""A collector of OpenTelemetry's on loopback: what it was sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Collector:
    """What a collector was sent."""

    url: str = ""
    received: list[ExportTraceServiceRequest] = field(default_factory=list)

    @property
    def spans(self) -> set[tuple[str, str]]:
        """Service and name of all spans."""
        return {
            (of.resource.attributes[at].value.string_value, span.name)
            for request in self.received
            for of in request.resource_spans
            for at, one in enumerate(of.resource.attributes)
            if one.key == "service.name"
            for scope in of.scope_spans
            for span in scope.spans
        }

    def traces(self, name: str) -> set[str]:
        """Return the ids of the traces with a span of a name."""
        return {
            span.trace_id.hex()
            for request in self.received
            for of in request.resource_spans
            for scope in of.scope_spans
            for span in scope.spans
            if span.name == name
        }


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """Collect on loopback."""
    collector = Collector()

    async def take(request: web.Request) -> web.Response:
        assert request.content_type == "application/x-protobuf"
        collector.received.append(ExportTraceServiceRequest.FromString(await request.read()))
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()
