"""Metrics for Prometheus: what exchanges end as, and what the process does when it is asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, Literal

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


_EXCHANGE = ("flow", "assigned", "served", "outcome")
METRICS: Final = (
    Metric(
        "cutover_exchange_seconds",
        "histogram",
        "From the request to the last frame; its count is that of the exchanges.",
        _EXCHANGE,
    ),
    Metric("cutover_ttft_seconds", "histogram", "From the request to the first text.", _EXCHANGE),
    Metric(
        "cutover_failures_total",
        "counter",
        "Exchanges that failed, by whose fault it was (stack, world, configuration) and its code.",
        ("flow", "assigned", "blame", "code"),
    ),
    Metric(
        "cutover_takeovers_total",
        "counter",
        "Runs that another stack took over from: the stack that failed, and why.",
        ("flow", "stack", "blame", "code"),
    ),
    Metric(
        "cutover_tokens_total",
        "counter",
        "Tokens that models read (input) and wrote (output), as their providers count them.",
        ("flow", "served", "model", "kind"),
    ),
    Metric(
        "cutover_refused_total",
        "counter",
        "Requests refused before an exchange began, such as `overloaded` and `stopping`.",
        ("flow", "code"),
    ),
    Metric("cutover_streams_open", "gauge", "Streams that are open."),
    Metric("cutover_streams_limit", "gauge", "Streams that may be open."),
    Metric(
        "cutover_graph_percent",
        "gauge",
        "The share of route keys that graph serves; 0 while it is off or its breaker is open.",
        ("flow",),
    ),
    Metric("cutover_shadow_percent", "gauge", "The share that is mirrored.", ("flow",)),
    Metric("cutover_breaker_open", "gauge", "1 while a stack rests.", ("flow", "stack")),
    Metric(
        "cutover_shadows_total",
        "counter",
        "Shadows by how they ended: equal, different, failed, or why there was none.",
        ("state",),
    ),
    Metric(
        "cutover_captures_total",
        "counter",
        "Lines of captures that were `written`, and those dropped, by reason.",
        ("state",),
    ),
    Metric(
        "cutover_off_tape_total",
        "counter",
        "Calls past the tape: `outside` of a run while one plays, `ended` after their run's end, "
        "`escaped` from a shadow.",
        ("where",),
    ),
    Metric(
        "cutover_gateway_uncorrelated_total",
        "counter",
        "Calls at the gateway that are on no tape: they name no run (`no_run`, `unknown_trace`), "
        "or one that is over (`run_over`).",
        ("reason",),
    ),
    Metric("cutover_configuration_refused", "gauge", "1 while the newest settings are refused."),
    Metric("cutover_draining", "gauge", "1 while the server stops."),
    Metric(
        "cutover_loop_late_seconds",
        "gauge",
        "The longest delay of the event loop in the last 15 seconds.",
    ),
    Metric(
        "cutover_build_info", "gauge", "1; the version and the settings.", ("version", "digest")
    ),
)
"""All that is exported, beside what prometheus_client says of the process (`process_*`)."""

Sample = tuple[tuple[str, ...], float]


class Telemetry(Collector):
    """Counts exchanges as they end; everything else is read from the process when it is asked."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._known: defaultdict[str, set[str]] = defaultdict(set)
        self.registry = CollectorRegistry()
        known = {one.name: one for one in METRICS}

        def counter(name: str) -> Counter:
            one = known.pop(name)
            return Counter(one.name, one.about, one.labels, registry=self.registry)

        def histogram(name: str) -> Histogram:
            one = known.pop(name)
            return Histogram(
                one.name, one.about, one.labels, registry=self.registry, buckets=SECONDS
            )

        self._seconds = histogram("cutover_exchange_seconds")
        self._ttft = histogram("cutover_ttft_seconds")
        self._failures = counter("cutover_failures_total")
        self._takeovers = counter("cutover_takeovers_total")
        self._tokens = counter("cutover_tokens_total")
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
        samples: defaultdict[str, list[Sample]] = defaultdict(list)
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
        for reason, count in now.uncorrelated.items():
            yield "cutover_gateway_uncorrelated_total", (reason,), count
        yield "cutover_configuration_refused", (), bool(now.refused())
        yield "cutover_draining", (), now.streams.draining
        yield "cutover_loop_late_seconds", (), now.late
        yield "cutover_build_info", (now.version,), 1
