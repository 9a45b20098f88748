"""Figures of requests in conversations: design effects, ratios of means, sizes for shares."""

from __future__ import annotations

import numpy as np
import pytest

from evidence import intervals
from evidence.intervals import (
    Sample,
    design_effect,
    difference_interval,
    mean_ratio,
    percentile_ratio,
)
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


def test_kinds_of_conversations_are_drawn_as_the_conversations_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Conversations of one or two requests, with one of seven numbers of tokens each."""
    random = np.random.default_rng(1)
    owners = np.concatenate([np.arange(1_000), np.arange(400)])
    tokens = random.integers(1, 8, 1_000).astype(float)
    sides = Sample(tokens[owners], owners), Sample(1.1 * tokens[owners], owners)
    kinds = mean_ratio(*sides)
    monkeypatch.setattr(intervals, "_ALIKE", 1_000)
    drawn = mean_ratio(*sides)
    assert kinds is not None
    assert drawn is not None
    assert kinds.value == drawn.value
    assert (kinds.low, kinds.high) == pytest.approx((drawn.low, drawn.high), abs=0.008)


@pytest.mark.parametrize("p", [0.5, 0.95])
def test_places_of_a_percentile_are_drawn_as_the_requests_are(p: float) -> None:
    """Each request a conversation by itself: as plain drawing has it, thousands of times."""
    random = np.random.default_rng(2)
    sides = np.exp(0.6 * random.standard_normal((2, 600)))
    control, candidate = (Sample(side, np.arange(600)) for side in sides)
    found = percentile_ratio(control, candidate, p)
    assert found is not None
    drawn = [
        np.quantile(random.choice(side, (4_000, 600)), p, axis=1, method="inverted_cdf")
        for side in sides
    ]
    expected = np.quantile(drawn[1] / drawn[0], [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx(expected, rel=0.02)


def test_the_planned_size_shows_an_equal_share() -> None:
    """At that size the interval of two equal shares ends below the margin as often as planned."""
    n = needed_for_no_more(0.02, 0.01)
    random = np.random.default_rng(0)
    hits = random.binomial(n, 0.02, (500, 2))
    passed = [difference_interval((a, b), (n, n))[1] < 0.01 for a, b in hits.tolist()]
    assert np.mean(passed) == pytest.approx(0.95, abs=0.04)
