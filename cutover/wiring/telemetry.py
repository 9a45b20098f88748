"""Telemetry of a router: whether metrics and traces are wanted, and where traces are sent."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from contract.errors import MissingExtra
from effects.model import ModelRegistry
from router.config.addresses import read_secret
from router.config.schema import TracingSettings
from router.telemetry.instruments import FOLDER, MetricSources

if TYPE_CHECKING:  # they import what extras and metrics need
    from router.telemetry.metrics import ExchangeMetrics, MetricValues, RouterMetrics
    from router.telemetry.tracing import ExchangeSpans

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""OpenTelemetry's own variables: with one of them set, traces are sent."""
HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
"""Those that may hold a key."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """The metrics of a router, and the observer of its exchanges that counts them."""

    values: MetricValues
    exchanges: ExchangeMetrics

    @asynccontextmanager
    async def running(self, sources: MetricSources) -> AsyncIterator[RouterMetrics]:
        """Keep the metrics up to date from these sources; yields what writes their page."""
        metrics: RouterMetrics = _module().RouterMetrics(
            self.values, sources, os.environ.get(FOLDER, "")
        )
        async with metrics.running():
            yield metrics


def open_metrics(models: ModelRegistry, spans: ExchangeSpans | None = None) -> Metrics:
    """Return new metrics; calls are labelled with the registered models.

    Exemplars name the traces that are sent, or without any those of the callers.
    """
    values: MetricValues = _module().MetricValues()
    traces = (spans.trace_id,) if spans is not None else ()
    return Metrics(values, _module().ExchangeMetrics(values, lambda: models.entries, *traces))


def _module() -> Any:
    """Import the module that needs Prometheus' client, whose import costs time."""
    return import_module("router.telemetry.metrics")


def open_tracing(
    tracing: TracingSettings, environ: Mapping[str, str], stack: AsyncExitStack
) -> ExchangeSpans | None:
    """Return the observer that sends traces until `stack` closes; None where none are wanted.

    Raises:
        ConfigRefused: the configuration names a variable that is not set.
        MissingExtra: the configuration wants traces, and the extra `otel` is not installed.
    """
    endpoint = read_secret(tracing.endpoint_env, environ).decode()
    if not endpoint and not any(environ.get(one) for one in ENDPOINTS):
        return None
    try:
        export = import_module("cutover.wiring.trace_export")
    except ImportError as error:
        missing = MissingExtra("tracing", "otel")
        if endpoint:
            raise missing from error
        # A platform sets its variables for every service; this one is not configured to trace.
        log.warning("no traces are sent: %s", missing)
        return None
    observer: ExchangeSpans = export.exporting(endpoint, tracing.percent, environ, stack)
    return observer
