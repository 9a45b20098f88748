"""Percentiles and their intervals."""

from __future__ import annotations

from array import array

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from compare.report.latency import BINS, latencies, percentile
from compare.report.timeline import bars_of, marks_of
from compare.tally import Series


@given(st.lists(st.integers(0, 10**7), min_size=1), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_is_the_nearest_rank(values: list[int], share: float) -> None:
    """As numpy's inverted distribution has it, and within its own interval."""
    ordered = np.sort(np.asarray(values, dtype=np.int64))
    found = percentile(ordered, share)
    assert found.value == np.percentile(ordered, share * 100, method="inverted_cdf")
    assert found.low is None or found.low <= found.value
    assert found.high is None or found.high >= found.value


def test_served_series_of_a_metric_share_an_axis() -> None:
    """So that histograms one below the other can be compared; a shadow's cannot."""
    times = {
        Series("chat", "graph", "serving", "end"): array("q", [200, 400]),
        Series("chat", "legacy", "serving", "end"): array("q", [100, 300, 300]),
        Series("chat", "legacy", "shadow", "end"): array("q", [1]),
    }
    found = latencies(times)
    assert [(x.stack, x.role) for x in found] == [
        ("legacy", "serving"),
        ("graph", "serving"),
        ("legacy", "shadow"),
    ]
    assert [(x.served, x.axis_low, x.axis_high) for x in found] == [
        (True, 100, 400),
        (True, 100, 400),
        (False, 1, 1),
    ]
    assert [sum(x.histogram) for x in found] == [3, 2, 1]
    assert all(len(x.histogram) == BINS for x in found)


@given(st.lists(st.integers(0, 10**9), min_size=1))
def test_what_is_drawn_stays_on_the_canvas(values: list[int]) -> None:
    """Bars and marks lie between 0 and 100 percent, whatever the values."""
    [latency] = latencies({Series("chat", "legacy", "serving", "end"): array("q", values)})
    for bar in bars_of(latency):
        assert 0 <= bar.x <= bar.x + bar.width <= 100.1
        assert 0 < bar.height <= 1
    assert all(0 <= mark.x <= 100 for mark in marks_of(latency))


def test_no_times_are_no_latencies() -> None:
    """An empty comparison has an empty table."""
    assert latencies({}) == ()
