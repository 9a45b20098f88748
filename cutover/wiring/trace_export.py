"""Export of traces by OpenTelemetry's SDK; needs the extra `otel`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack
from decimal import Decimal
from importlib.metadata import version

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from router.telemetry.tracing import ExchangeSpans

SHUTDOWN_SECONDS = 5.0
"""Seconds for the last batch when the router stops."""


def exporting(
    endpoint: str, percent: Decimal, environ: Mapping[str, str], stack: AsyncExitStack
) -> ExchangeSpans:
    """Send traces to an endpoint ("": that of OpenTelemetry's variables), until `stack` ends."""
    processor = BatchSpanProcessor(OTLPSpanExporter(endpoint or None))
    provider = provided(processor, percent, environ)
    stack.push_async_callback(ended, provider)
    return observer(provider)


def provided(
    processor: SpanProcessor, percent: Decimal, environ: Mapping[str, str]
) -> TracerProvider:
    """Return a provider that samples a share of the traces whose caller has not decided."""
    provider = TracerProvider(
        ParentBased(TraceIdRatioBased(float(percent) / 100)),
        _resource(environ),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(processor)
    return provider


def observer(provider: TracerProvider) -> ExchangeSpans:
    """Return the observer that builds spans for a provider."""
    return ExchangeSpans(provider.get_tracer("cutover", version("cutover")))


async def ended(provider: TracerProvider) -> None:
    """Send what is left, or give up after a while."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def end() -> None:
        provider.shutdown()
        if not loop.is_closed():
            loop.call_soon_threadsafe(done.set)

    # A thread of its own: the loop waits for those of its executor, however long.
    threading.Thread(target=end, name="traces-end", daemon=True).start()
    try:
        async with asyncio.timeout(SHUTDOWN_SECONDS):
            await done.wait()
    except TimeoutError:
        return


def _resource(environ: Mapping[str, str]) -> Resource:
    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return Resource.create({} if named else {"service.name": "cutover"})
