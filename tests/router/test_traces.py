"""Traces as a collector gets them: protobuf over HTTP, on loopback."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from harness import root
from harness.config import parse
from harness.live import LiveSettings
from tests.support.client import Client
from tests.support.stage import staged

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

CHAT = {"message_id": "m", "content": "What is 12 * 7?"}
GRAPH = {"enable_langgraph": True, "langgraph_percent": 100.0}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """An OTLP collector: it keeps the spans that come."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.service = ""

    async def take(self, request: web.Request) -> web.Response:
        """Take a batch."""
        batch = ExportTraceServiceRequest.FromString(await request.read())
        for resource in batch.resource_spans:
            [self.service] = [
                one.value.string_value
                for one in resource.resource.attributes
                if one.key == "service.name"
            ]
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return web.Response()

    def named(self, start: str) -> list[Span]:
        """Return the spans whose names begin like this, in order of their starts."""
        found = [one for one in self.spans if one.name.startswith(start)]
        return sorted(found, key=lambda one: one.start_time_unix_nano)


def said(span: Span) -> dict[str, Any]:
    """Return a span's attributes."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


@pytest.fixture
async def collector() -> AsyncIterator[tuple[Collector, str]]:
    """A collector and its address."""
    taking, app = Collector(), web.Application()
    app.router.add_post("/v1/traces", taking.take)
    async with TestServer(app) as server:
        yield taking, str(server.make_url("")).rstrip("/")


async def traced(url: str, *, crash_after: int = 0, **headers: str) -> None:
    """Serve one exchange, and let its traces be sent."""
    settings = parse({"flows": {"chat": GRAPH}, "telemetry": {"otlp": url}})
    ended = asyncio.Event()
    async with staged() as stage, root.tracing(settings) as observers:
        told = (*observers, lambda _: ended.set())
        live = LiveSettings(settings)
        app = root.application(live, stage.world, observers=told, crash_after=crash_after)
        await Client(app, sends=headers).post("/chat/sse", CHAT)
        await ended.wait()


async def test_an_exchange_is_a_tree_of_spans(collector: tuple[Collector, str]) -> None:
    """The client's trace is continued; calls hang under the run that made them."""
    found, url = collector
    await traced(url, traceparent=f"00-{TRACE}-{PARENT}-01")
    [exchange], [run] = found.named("exchange chat"), found.named("run graph")
    assert {one.trace_id.hex() for one in found.spans} == {TRACE}
    assert exchange.parent_span_id.hex() == PARENT
    assert run.parent_span_id == exchange.span_id
    calls = [one for one in found.spans if one not in (exchange, run)]
    assert calls
    assert {one.parent_span_id for one in calls} == {run.span_id}
    assert found.service == "cutover"
    for one in (run, *calls):
        assert exchange.start_time_unix_nano <= one.start_time_unix_nano + 1_000_000
        assert one.start_time_unix_nano <= one.end_time_unix_nano
    assert said(exchange)["cutover.outcome"] == "completed"


async def test_a_model_call_speaks_the_conventions(collector: tuple[Collector, str]) -> None:
    """Those of OpenTelemetry for generative AI."""
    found, url = collector
    await traced(url)
    call = found.named("chat gpt-4.1")[0]
    assert call.kind == Span.SpanKind.SPAN_KIND_CLIENT
    facts = said(call)
    assert facts["gen_ai.operation.name"] == "chat"
    assert facts["gen_ai.request.model"] == "gpt-4.1"
    assert facts["gen_ai.usage.input_tokens"] > 0
    assert facts["gen_ai.usage.output_tokens"] > 0
    assert facts["server.address"] == "127.0.0.1"
    assert not any(CHAT["content"] in str(one) for one in found.spans)


async def test_a_takeover_is_two_runs(collector: tuple[Collector, str]) -> None:
    """The one that failed says why; the exchange has completed."""
    found, url = collector
    await traced(url, crash_after=2)
    first, second = found.named("run ")
    assert (first.name, said(first)["error.type"]) == ("run graph", "stack_failed")
    assert first.status.code == first.status.StatusCode.STATUS_CODE_ERROR
    assert (second.name, said(second)["cutover.role"]) == ("run legacy", "fallback")
    assert said(second)["cutover.outcome"] == "completed"
    assert said(found.named("exchange chat")[0])["cutover.served"] == "legacy"


async def test_a_collector_that_is_away_stops_nothing() -> None:
    """What cannot be sent is dropped, and the server ends in time."""
    await traced("http://127.0.0.1:9")
