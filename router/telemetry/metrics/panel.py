"""The panel: the instruments in the hands of Prometheus' client.

The client decides when it is imported whether values are kept in this process or, for several
workers, in the folder that the variable `PROMETHEUS_MULTIPROC_DIR` names: nothing imports this
module unless metrics are wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)

from router.telemetry.metrics.instruments import INSTRUMENTS

if TYPE_CHECKING:
    from router.telemetry.metrics.instruments import Instrument

# When a series was made tells nobody anything, and doubles what is scraped.
disable_created_metrics()  # type: ignore[no-untyped-call] # the client's own omission


class Panel:
    """All instruments, and their values in this process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._made = {one: _make(one, self.registry) for one in INSTRUMENTS}
        self._series: dict[tuple[str, ...], Any] = {}

    def add(self, instrument: Instrument, amount: float, *labels: str) -> None:
        """Let a counter grow."""
        self._one(instrument, labels).inc(amount)

    def put(self, instrument: Instrument, value: float, *labels: str) -> None:
        """Set a gauge."""
        self._one(instrument, labels).set(value)

    def observe(self, instrument: Instrument, value: float, *labels: str) -> None:
        """Sort a value into a histogram."""
        self._one(instrument, labels).observe(value)

    def _one(self, instrument: Instrument, labels: tuple[str, ...]) -> Any:
        # The client's own way to a series takes a lock and half of the time.
        key = (instrument.name, *labels)
        series = self._series.get(key)
        if series is None:
            made = self._made[instrument]
            self._series[key] = series = made.labels(*labels) if labels else made
        return series


def _make(one: Instrument, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    match one.kind:
        case "counter":
            return Counter(one.name, one.tells, one.labels, registry=registry)
        case "gauge":
            return Gauge(
                one.name, one.tells, one.labels, registry=registry, multiprocess_mode=one.across
            )
        case "histogram":
            return Histogram(
                one.name, one.tells, one.labels, registry=registry, buckets=one.buckets
            )
