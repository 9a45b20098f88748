"""When an open loop sends."""

from __future__ import annotations

import numpy as np
import pytest

from loadtests.open_loop import Constant, Poisson, TraceArrivals, offsets


def test_constant_arrivals_are_even() -> None:
    """Ten a second, from the start."""
    assert offsets(Constant(10.0), 0.5) == pytest.approx((0.0, 0.1, 0.2, 0.3, 0.4))


def test_poisson_arrivals_are_drawn_with_a_seed() -> None:
    """The same seed gives the same trace; gaps have the mean and the spread of an exponential."""
    drawn = offsets(Poisson(50.0, seed=1), 200.0)
    gaps = np.diff(drawn)
    assert drawn == offsets(Poisson(50.0, seed=1), 200.0)
    assert drawn != offsets(Poisson(50.0, seed=2), 200.0)
    assert np.mean(gaps) == pytest.approx(0.02, rel=0.05)
    assert np.std(gaps) == pytest.approx(0.02, rel=0.05)
    assert max(drawn) < 200.0


def test_a_trace_is_played_at_its_speed() -> None:
    """In order, and only what fits."""
    assert offsets(TraceArrivals((4.0, 1.0, 30.0), speed=2.0), 10.0) == (0.5, 2.0)
