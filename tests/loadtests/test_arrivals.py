"""Arrivals: absolute moments, drawn with a seed, as dense as their shape; clients that leave."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.arrivals import (
    SHAPES,
    Arrivals,
    Cancellations,
    Constant,
    Poisson,
    Shape,
    Trace,
    level,
    moments,
    offsets,
)

SHAPE = st.sampled_from(get_args(Shape))


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


def test_a_trace_is_followed_until_the_run_is_over() -> None:
    """Its moments are seconds from the start."""
    assert offsets(Trace((0.0, 0.4, 2.0)), 1.0) == (0.0, 0.4)


@given(SHAPE, st.integers(1, 50), st.floats(1.0, 600.0))
def test_arrivals_ascend_within_the_run(shape: Shape, rate: int, seconds: float) -> None:
    """Evenly spaced or drawn, of any shape."""
    schedules: tuple[Arrivals, ...] = Constant(rate, shape), Poisson(rate, 1, shape)
    for arrivals in schedules:
        at = offsets(arrivals, seconds)
        assert all(earlier <= later for earlier, later in pairwise(at))
        assert all(0 <= moment < seconds for moment in at)


@pytest.mark.parametrize("shape", get_args(Shape))
def test_requests_are_as_dense_as_the_level(shape: Shape) -> None:
    """In each tenth of the run, evenly spaced: the rate times the mean level there."""
    counts, _ = np.histogram(offsets(Constant(1_000.0, shape), 10.0), bins=10, range=(0, 10))
    for tenth, count in enumerate(counts):
        levels = [level(shape, (tenth + part / 100) / 10) for part in range(100)]
        assert count == pytest.approx(1_000 * np.mean(levels), abs=15)


@given(SHAPE, st.floats(0.0, 1.0, exclude_max=True))
def test_a_moment_is_where_its_area_has_passed(shape: Shape, share: float) -> None:
    """The inverse of the level's integral, which a fine sum gives as well."""
    stretches = SHAPES[shape]
    starts = [0.0, *(stretch.until for stretch in stretches)]
    sizes = [
        (stretch.until - start) * (stretch.low + stretch.high) / 2
        for start, stretch in zip(starts, stretches, strict=False)
    ]
    area = share * sum(sizes) * (1 - 1e-9)
    (at,) = moments(shape, [area])
    steps = np.linspace(0.0, at, 4_001)
    middles = (steps[:-1] + steps[1:]) / 2
    passed = sum(level(shape, middle) for middle in middles) * (at / 4_000)
    assert passed == pytest.approx(area, abs=1e-3)


def test_clients_leave_as_planned_whoever_sends_for_them() -> None:
    """A tenth of them, evenly within the time, the same at every asking; none by default."""
    leaving = [Cancellations(0.1, 4.0).after(7, number) for number in range(20_000)]
    moments = [after for after in leaving if after is not None]
    assert leaving == [Cancellations(0.1, 4.0).after(7, number) for number in range(20_000)]
    assert len(moments) == pytest.approx(2_000, rel=0.1)
    assert np.mean(moments) == pytest.approx(2.0, rel=0.05)
    assert max(moments) <= 4.0
    assert not any(Cancellations().after(7, number) for number in range(100))
