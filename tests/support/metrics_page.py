"""Reading a page of metrics with the parser of Prometheus' client."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Exemplar

from router.telemetry.instruments import Instrument
from router.telemetry.metrics import MetricValues

Labels = tuple[str, ...]


def samples(page: str, instrument: Instrument, suffix: str = "") -> dict[Labels, float]:
    """Return the values of one instrument by its labels; histograms by `_sum` or `_count`."""
    return {
        tuple(sample.labels[name] for name in instrument.labels): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == instrument.name + suffix
    }


def traced(page: str, instrument: Instrument) -> dict[str, Exemplar]:
    """Return the exemplars of a histogram with one series on a page of OpenMetrics, by bucket."""
    families: Iterable[Metric] = openmetrics.text_string_to_metric_families(page)  # type: ignore[no-untyped-call] # the client's own omission
    return {
        sample.labels["le"]: sample.exemplar
        for family in families
        for sample in family.samples
        if sample.name == f"{instrument.name}_bucket" and sample.exemplar
    }


def shown(panel: MetricValues, instrument: Instrument, suffix: str = "") -> dict[Labels, float]:
    """Return what a panel shows for one instrument."""
    return samples(generate_latest(panel.registry).decode(), instrument, suffix)
