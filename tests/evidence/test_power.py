"""Planned sizes: they hold what they promise of the normal distribution."""

from __future__ import annotations

from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from evidence.intervals import RatioEstimate
from evidence.power import needed_for_no_worse


@given(st.floats(0.01, 1.0), st.integers(100, 10**5), st.floats(0.02, 0.5), st.floats(0.5, 0.99))
def test_the_planned_size_has_the_power_that_is_asked_for(
    error: float, n: int, margin: float, power: float
) -> None:
    """And one request a side less has not."""
    reach = 1.959964 * error
    needed = needed_for_no_worse(RatioEstimate(1.0, exp(-reach), exp(reach)), n, margin, power)

    def reached(size: int) -> float:
        at = error * (n / size) ** 0.5
        return float(norm.cdf(log(1 + margin) / at - 1.959964))

    assert reached(needed) >= power - 1e-6
    assert needed == 1 or reached(needed - 1) <= power + 1e-6


def test_a_pilot_of_the_log_normal_plans_what_its_formula_says() -> None:
    """P95 at σ 0.6: the variance of its logarithm is p (1 - p) σ² / (n φ(z)²) on each side."""
    n = 4_000
    error = (2 * 0.95 * 0.05 * 0.36 / (n * norm.pdf(norm.ppf(0.95)) ** 2)) ** 0.5
    pilot = RatioEstimate(1.0, exp(-1.959964 * error), exp(1.959964 * error))
    assert needed_for_no_worse(pilot, n, 0.15, 0.9) == pytest.approx(1_730, abs=5)
