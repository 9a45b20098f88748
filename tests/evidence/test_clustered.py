"""Figures of requests in conversations: design effects, ratios of means, sizes for shares."""

from __future__ import annotations

import numpy as np
import pytest

from evidence.intervals import Sample, design_effect, difference_interval, mean_ratio
from evidence.power import needed_for_no_more


def test_turns_that_are_alike_count_once() -> None:
    """Ten equal turns a conversation are worth a tenth; independent ones are worth themselves."""
    random = np.random.default_rng(0)
    hits = (random.random(400) < 0.3).astype(float)
    owners = np.arange(400)
    assert design_effect(Sample(hits, owners)) == pytest.approx(1.0, abs=0.01)
    alike = Sample(np.repeat(hits, 10), np.repeat(owners, 10))
    assert design_effect(alike) == pytest.approx(10.0, rel=0.01)
    assert design_effect(Sample(np.zeros(5), np.arange(5))) == 1.0


def test_the_ratio_of_means_lies_in_its_interval_and_few_conversations_have_none() -> None:
    """A candidate with a fifth more tokens."""
    random = np.random.default_rng(0)
    control = Sample(random.exponential(1.0, 2_000), np.arange(2_000) // 2)
    candidate = Sample(1.2 * random.exponential(1.0, 2_000), np.arange(2_000) // 2)
    found = mean_ratio(control, candidate)
    assert found is not None
    assert found.low < found.value < found.high
    assert found.low < 1.2 < found.high
    assert mean_ratio(control, Sample(np.ones(20), np.arange(20))) is None
    assert mean_ratio(Sample(np.zeros(50), np.arange(50)), candidate) is None


def test_the_planned_size_shows_an_equal_share() -> None:
    """At that size the interval of two equal shares ends below the margin as often as planned."""
    n = needed_for_no_more(0.02, 0.01)
    random = np.random.default_rng(0)
    hits = random.binomial(n, 0.02, (500, 2))
    passed = [difference_interval((a, b), (n, n))[1] < 0.01 for a, b in hits.tolist()]
    assert np.mean(passed) == pytest.approx(0.95, abs=0.04)
