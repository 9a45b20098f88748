"""Reading a page of metrics with the parser of Prometheus' client."""

from __future__ import annotations

from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

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


def shown(panel: MetricValues, instrument: Instrument, suffix: str = "") -> dict[Labels, float]:
    """Return what a panel shows for one instrument."""
    return samples(generate_latest(panel.registry).decode(), instrument, suffix)
