"""ExchangeSpans in memory, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cutover.wiring.trace_export import observer, provided
from router.telemetry.tracing import ExchangeSpans

ALL = Decimal(100)


class Traced:
    """A tracer's spans: kept here, sent nowhere."""

    def __init__(self, percent: Decimal = ALL) -> None:
        self._kept = InMemorySpanExporter()
        self.observer: ExchangeSpans = observer(
            provided(SimpleSpanProcessor(self._kept), percent, {})
        )

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """All that have ended."""
        return self._kept.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        """Return the one span of a name."""
        (found,) = (span for span in self.spans if span.name == name)
        return found

    def below(self, parent: ReadableSpan) -> list[ReadableSpan]:
        """Return a span's children."""
        return [
            span
            for span in self.spans
            if span.parent is not None and span.parent.span_id == identity(parent)
        ]


def identity(span: ReadableSpan) -> int:
    """Return a span's id."""
    assert span.context is not None
    return int(span.context.span_id)


def said(span: ReadableSpan) -> Mapping[str, Any]:
    """Return a span's attributes."""
    return span.attributes or {}


def times(span: ReadableSpan, began: int) -> tuple[float, float]:
    """Return begin and end in microseconds since a moment, itself in microseconds."""
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time / 1_000 - began, span.end_time / 1_000 - began
