"""Traces of a house: whether they are wanted, and where they are sent."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

from effects.extras import MissingExtra
from router.config import read_secret

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AsyncExitStack

    from router.config import TracingSettings
    from router.context import Observer

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""OpenTelemetry's own variables: with one of them set, traces are wanted."""
HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
"""Those that may hold a key."""


def open_tracing(
    tracing: TracingSettings, environ: Mapping[str, str], stack: AsyncExitStack
) -> list[Observer]:
    """Give the observer that sends traces, none where none are wanted; `stack` ends the sending.

    Raises:
        ConfigRefused: the configuration names a variable that is not set.
        MissingExtra: the configuration wants traces, and the extra `otel` is not installed.
    """
    endpoint = read_secret(tracing.endpoint_env, environ).decode()
    if not endpoint and not any(environ.get(one) for one in ENDPOINTS):
        return []
    try:
        sending = import_module("cutover.wiring.trace_export")
    except ImportError as error:
        missing = MissingExtra("tracing", "otel")
        if endpoint:
            raise missing from error
        # A platform sets its variables for everybody: nobody asked for traces of this service.
        log.warning("no traces are sent: %s", missing)
        return []
    observer: Observer = sending.exporting(endpoint, tracing.percent, environ, stack)
    return [observer]
