"""The rate limit: never more than promised, never less, and no more memory than allowed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.routing.limits import TokenBuckets

GAPS = st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0, 100.0]), max_size=60)


@given(GAPS, st.integers(1, 5))
def test_no_stretch_of_time_gets_more_than_burst_and_rate(gaps: list[float], burst: int) -> None:
    """Two a second, whatever the pattern."""
    buckets = TokenBuckets(2.0, burst, 10)
    now, taken = 0.0, list[float]()
    for gap in gaps:
        now += gap
        wait = buckets.take("k", now)
        if not wait:
            taken.append(now)
        else:
            assert 0 < wait <= 0.5
    for first, begun in enumerate(taken):
        for last in range(first, len(taken)):
            assert last - first + 1 <= burst + 2.0 * (taken[last] - begun) + 1e-9


def test_whoever_waits_as_told_is_taken() -> None:
    """The burst at once, then one for each half second; keys do not share."""
    buckets = TokenBuckets(2.0, 3, 10)
    assert [buckets.take("a", 5.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("b", 5.0) == 0.0
    assert buckets.take("a", 5.25) == 0.25
    assert buckets.take("a", 5.5) == 0.0
    assert buckets.take("a", 5.5) == 0.5
    assert [buckets.take("a", 1_000.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_the_least_recently_used_key_is_forgotten() -> None:
    """Memory is bounded; a key forgotten begins anew, one in use is kept."""
    buckets = TokenBuckets(1.0, 1, 2)
    assert buckets.take("a", 0.0) == 0.0
    assert buckets.take("b", 0.0) == 0.0
    assert buckets.take("a", 0.0) == 1.0
    assert buckets.take("c", 0.0) == 0.0
    assert len(buckets) == 2
    assert buckets.take("a", 0.0) == 1.0
    assert buckets.take("b", 0.0) == 0.0
