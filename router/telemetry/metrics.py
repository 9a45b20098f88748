"""Metrics for Prometheus: what exchanges end as, and what the process does when it is asked."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from cutover.errors import Failed
from cutover.tape import off_tape, outside
from router.exchange import Served
from router.telemetry.status import Process

disable_created_metrics()  # type: ignore[no-untyped-call]  # series that Prometheus does not need

M = TypeVar("M", Counter, Histogram)
MEDIA_TYPE: Final = CONTENT_TYPE_LATEST
SECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 20.0, 30.0, 60.0, 120.0)
"""Bounds of the histograms."""
MOST_VALUES: Final = 50
"""Values of one label that others choose, such as a model's name; further ones are `other`."""


class Metric(msgspec.Struct, frozen=True):
    """A metric as it is exported: those that end in `_total` are counters."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    about: str
    labels: tuple[str, ...] = ()


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
METRICS: Final = tuple(
    msgspec.convert({"name": name} | row, Metric) for name, row in _TABLE.items()
)
"""All that is exported, beside what prometheus_client says of the process (`process_*`)."""


class Telemetry(Collector):
    """Counts exchanges as they end; everything else is read from the process when it is asked."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._known: defaultdict[str, set[str]] = defaultdict(set)
        self.registry = CollectorRegistry()
        known = {one.name: one for one in METRICS}

        def counted(metric: Callable[..., M], name: str) -> M:
            one = known.pop(name)
            return metric(one.name, one.about, one.labels, registry=self.registry)

        histogram = partial(Histogram, buckets=SECONDS)
        self._seconds = counted(histogram, "cutover_exchange_seconds")
        self._ttft = counted(histogram, "cutover_ttft_seconds")
        self._failures = counted(Counter, "cutover_failures_total")
        self._takeovers = counted(Counter, "cutover_takeovers_total")
        self._tokens = counted(Counter, "cutover_tokens_total")
        self._pulled = tuple(known.values())
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def page(self) -> bytes:
        """Return all metrics in Prometheus' text format, `MEDIA_TYPE`."""
        return generate_latest(self.registry)

    def observe(self, exchange: Served) -> None:
        """Count an exchange that has ended."""
        flow, outcome = exchange.flow.name, exchange.outcome
        labels = (flow, exchange.assigned, exchange.served, type(outcome).__name__.lower())
        if exchange.ended is not None:
            self._seconds.labels(*labels).observe(exchange.ended - exchange.began)
        if exchange.first_text is not None:
            self._ttft.labels(*labels).observe(exchange.first_text - exchange.began)
        if isinstance(outcome, Failed):
            code = self._bounded("code", outcome.code)
            self._failures.labels(flow, exchange.assigned, outcome.blame, code).inc()
        for driver, why in exchange.taken_over:
            code = self._bounded("code", why.code)
            self._takeovers.labels(flow, driver.candidate.name, why.blame, code).inc()
        for call in exchange.model_calls:
            model = self._bounded("model", call.model)
            for kind, count in (("input", call.usage.input), ("output", call.usage.output)):
                if count:
                    self._tokens.labels(flow, exchange.served, model, kind).inc(count)

    def _bounded(self, label: str, value: str) -> str:
        known = self._known[label]
        if value not in known and len(known) >= MOST_VALUES:
            return "other"
        known.add(value)
        return value

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield what the process does now."""
        samples: defaultdict[str, list[tuple[tuple[str, ...], float]]] = defaultdict(list)
        for name, labels, value in self._read():
            samples[name].append((labels, value))
        for one in self._pulled:
            made = GaugeMetricFamily if one.kind == "gauge" else CounterMetricFamily
            family = made(one.name, one.about, labels=one.labels)
            for labels, value in samples[one.name]:
                family.add_metric(labels, value)
            yield family

    def _read(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        now = self._process
        for (flow, code), count in now.streams.refused.items():
            yield "cutover_refused_total", (flow, code), count
        yield "cutover_streams_open", (), now.streams.open
        yield "cutover_streams_limit", (), now.streams.limit
        for flow, breakers in now.breakers.items():
            yield "cutover_graph_percent", (flow,), now.graph_percent(flow)
            yield "cutover_shadow_percent", (flow,), now.flows[flow]().shadow_percent
            for stack, breaker in breakers.items():
                yield "cutover_breaker_open", (flow, stack), breaker.state == "open"
        for state, count in now.shadows.ledger.items():
            yield "cutover_shadows_total", (state,), count
        if now.captures is not None:
            yield "cutover_captures_total", ("written",), now.captures.written
            for reason, count in now.captures.dropped.items():
                yield "cutover_captures_total", (reason,), count
        yield "cutover_off_tape_total", ("outside",), outside.total()
        yield "cutover_off_tape_total", ("ended",), off_tape.total()
        yield "cutover_off_tape_total", ("escaped",), now.shadows.escaped.total()
        for reason, count in now.operating.uncorrelated.items():
            yield "cutover_gateway_uncorrelated_total", (reason,), count
        yield "cutover_configuration_refused", (), bool(now.operating.refused())
        yield "cutover_draining", (), now.streams.draining
        yield "cutover_loop_late_seconds", (), now.late
        yield "cutover_build_info", (now.operating.version,), 1
