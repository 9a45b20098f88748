"""Moments: absolute, drawn from the request, in order."""

from hypothesis import given
from hypothesis import strategies as st

from loadtests.simulator import Profile, script_for
from loadtests.simulator.script import TimedChunk, due_times, merged_chunks
from tests.loadtests.simulator.asking import asked

HERE = b"here"


def test_delays_do_not_add_up() -> None:
    """Delta k is due at ttft + k / rate, rounded once."""
    due = due_times(Profile(ttft_ms=200, rate=3), HERE, 301)
    assert (due[0], due[1], due[2], due[300]) == (200_000, 533_333, 866_667, 100_200_000)


def test_larger_chunks_take_longer() -> None:
    """A delta of four tokens is as slow as four tokens."""
    assert due_times(Profile(rate=100, chunk=4), HERE, 3) == [0, 40_000, 80_000]


@given(st.binary(), st.integers(0, 100), st.integers(0, 1000))
def test_jitter_is_drawn_and_bounded(digest: bytes, jitter: int, rate: int) -> None:
    """At most `jitter_ms` later, never out of order, the same for the same request."""
    due = due_times(Profile(jitter_ms=jitter, rate=rate), digest, 20)
    plain = due_times(Profile(rate=rate), digest, 20)
    assert due == sorted(due)
    assert due == due_times(Profile(jitter_ms=jitter, rate=rate), digest, 20)
    assert all(
        p <= d <= plain[k] + jitter * 1000 + 1
        for k, (d, p) in enumerate(zip(due, plain, strict=True))
    )


def test_what_is_due_together_goes_out_together() -> None:
    """Unless the profile splits."""
    chunks = [TimedChunk(0, b"a"), TimedChunk(0, b"b"), TimedChunk(5, b"c")]
    assert merged_chunks(chunks) == (TimedChunk(0, b"ab", 2), TimedChunk(5, b"c", 1))
    assert len(script_for(asked("Hello"), Profile(tokens=8)).chunks) == 1
    assert len(script_for(asked("Hello"), Profile(tokens=8, split=True)).chunks) == 1 + 8 + 2


def test_the_role_goes_out_with_the_first_delta_and_the_end_with_the_last() -> None:
    """Ten tokens at ten a second: ten moments."""
    script = script_for(asked("Hello"), Profile(ttft_ms=500, rate=10, tokens=10))
    assert [chunk.due_us for chunk in script.chunks] == [500_000 + k * 100_000 for k in range(10)]
    assert [chunk.count for chunk in script.chunks] == [2, *[1] * 8, 3]
