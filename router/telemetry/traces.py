"""Traces for OpenTelemetry: of each exchange that has ended, its runs and their calls.

Importing this needs the packages of the extra `otlp`.
"""

import asyncio
import time
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from cutover.errors import Failed, Outcome
from cutover.tape import Entry
from router.driver import Driver
from router.exchange import ModelCall, Served

EXPORT_SECONDS = 5.0
"""What sending a batch may take, and sending the rest when the server stops."""
_OPERATIONS = {"model.completions": "text_completion", "model.embeddings": "embeddings"}
"""What GenAI's conventions call the models' APIs, beside `chat`."""


class Traces:
    """Sends a tree of spans for each exchange to a collector, in the background (OTLP over HTTP).

    The client's `traceparent` is continued. Nothing that was said is in a span. The SDK's variables
    (`OTEL_*`) hold: headers, sampling, sizes of batches.
    """

    def __init__(self, url: str, version: str = "") -> None:
        resource = Resource.create({"service.name": "cutover", "service.version": version})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        endpoint = url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/v1/traces"
        self._processor = BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=EXPORT_SECONDS))
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("cutover", version)

    def observe(self, exchange: Served) -> None:
        """Make the spans of an exchange that has ended; to be called on its loop."""
        loop, now = asyncio.get_running_loop(), time.time_ns()
        tape = now - exchange.tape.stamp() * 1_000
        began = now - int((loop.time() - exchange.began) * 1e9)
        ended = now - int((loop.time() - (exchange.ended or loop.time())) * 1e9)
        headers = {name.lower(): value for name, value in exchange.request.headers}
        span = self._tracer.start_span(
            f"exchange {exchange.flow.name}",
            TraceContextTextMapPropagator().extract(headers),
            SpanKind.SERVER,
            {
                "http.route": exchange.request.path,
                "cutover.exchange": exchange.id,
                "cutover.flow": exchange.flow.name,
                "cutover.assigned": exchange.assigned,
                "cutover.served": exchange.served,
            },
            start_time=began,
        )
        _close(span, exchange.outcome, ended)
        models = {id(one.entry): one for one in exchange.model_calls}
        ends = [tape + one.began * 1_000 for one in exchange.runs[1:]] + [ended]
        for driver, end in zip(exchange.runs, ends, strict=True):
            self._run(driver, set_span_in_context(span), tape, end, models)

    def _run(
        self, driver: Driver, parent: Context, tape: int, ended: int, models: dict[int, ModelCall]
    ) -> None:
        span = self._tracer.start_span(
            f"run {driver.candidate.name}",
            parent,
            SpanKind.INTERNAL,
            {"cutover.stack": driver.candidate.name, "cutover.role": driver.run.role},
            start_time=tape + driver.began * 1_000,
        )
        within = set_span_in_context(span)
        for play in driver.run.plays:
            if play.how == "live":
                self._call(play.entry, models.get(id(play.entry)), within, tape)
        _close(span, driver.run.ended, ended)

    def _call(self, entry: Entry, model: ModelCall | None, parent: Context, tape: int) -> None:
        """Make the span of a call; it ends with the last item that came."""
        name, host = entry.call.name, entry.call.host
        facts: dict[str, AttributeValue | None] = {"cutover.writes": entry.call.writes}
        if model is not None:
            operation = _OPERATIONS.get(name, "chat")
            name = f"{operation} {model.model}"
            facts["gen_ai.operation.name"] = operation
            facts["gen_ai.request.model"] = model.model
            facts["gen_ai.usage.input_tokens"] = model.usage.input
            facts["gen_ai.usage.output_tokens"] = model.usage.output
        facts["server.address"] = host or None
        known = {one: value for one, value in facts.items() if value is not None}
        kind = SpanKind.CLIENT if model or host else SpanKind.INTERNAL
        began = tape + entry.at * 1_000
        span = self._tracer.start_span(name, parent, kind, known, start_time=began)
        if entry.end != "done":
            span.set_attribute("error.type", entry.fault.kind if entry.fault else entry.end)
            span.set_status(Status(StatusCode.ERROR))
        span.end(tape + max([entry.at, *(at for at, _ in entry.items[-1:])]) * 1_000)

    async def aclose(self) -> None:
        """Send what is left, within `EXPORT_SECONDS`."""
        await asyncio.to_thread(self._processor.force_flush, int(EXPORT_SECONDS * 1_000))
        await asyncio.to_thread(self._provider.shutdown)


def _close(span: Span, outcome: Outcome | None, ended: int) -> None:
    span.set_attribute("cutover.outcome", type(outcome).__name__.lower())
    if isinstance(outcome, Failed):
        span.set_attribute("error.type", outcome.code)
        span.set_attribute("cutover.blame", outcome.blame)
        span.set_status(Status(StatusCode.ERROR))
    span.end(ended)
