"""The bench of the statistics: it runs, and its rows are whole; no figure is asserted."""

from __future__ import annotations

import pytest

from benchmarks.parts.calibration import measure


@pytest.mark.slow
@pytest.mark.untraced
def test_the_bench_gives_a_row_for_each_promise() -> None:
    """Few simulations say nothing about how often."""
    judged = {row.name for row in measure(2) if row.target is not None}
    assert judged == {
        *(
            f"calibration.percentile.{shape}.false_alarms"
            for shape in ("log_normal_0.6", "log_normal_1.0", "bimodal")
        ),
        *(f"calibration.rate.{rate}.false_alarms" for rate in ("0.001", "0.01", "0.1")),
        "calibration.percentile.log_normal_0.6.slower_20.found",
        "calibration.turns.false_alarms",
        "calibration.turns.p95.false_alarms",
        "calibration.no_worse.equal.promoted",
        "calibration.no_worse.slower_15.promoted",
        "calibration.sample_ratio.false_alarms",
        "calibration.sample_ratio.52_to_48.found",
    }
