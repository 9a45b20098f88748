"""The time in which a loop turned: what passes while it stands still is left out of limits."""

from __future__ import annotations

import asyncio
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effects.loop_time import (
    BEAT_SECONDS,
    LATE_SECONDS,
    LoopTime,
    counted_loop_time,
    limit,
    limit_at,
    loop_now,
    turned,
)
from effects.testing.virtual_time import VirtualLoop

WAITS = st.lists(st.sampled_from([0.0, 0.01, BEAT_SECONDS, LATE_SECONDS, 0.3, 2.0, 12.0]))


@given(WAITS, st.sampled_from([0.0, 0.2, 5.0]))
def test_time_never_goes_back_and_counts_no_gap(waits: list[float], since_beat: float) -> None:
    """Between two beats it goes on by a quarter of a second at most."""
    time, moments = LoopTime(0.0), list(accumulate(waits))
    seen = 0.0
    for moment in moments:
        assert time.at(moment) >= seen - 1e-9
        seen = time.at(moment)
        time.beat(moment)
        assert time.at(moment) == pytest.approx(seen)
    now = sum(waits) + since_beat
    expected = sum(min(wait, LATE_SECONDS) for wait in [*waits, since_beat])
    assert time.at(now) == pytest.approx(expected)
    assert time.turned(now, now) == pytest.approx(expected)


@given(WAITS.filter(bool), st.floats(0, 30))
def test_of_the_last_seconds_those_count_in_which_it_turned(
    waits: list[float], seconds: float
) -> None:
    """As many as the loop's own time moved on by, wherever the span begins."""
    time, moments = LoopTime(0.0), list(accumulate(waits))
    now = moments[-1]
    seconds = min(seconds, now)
    before = LoopTime(0.0)
    for moment in moments:
        time.beat(moment)
        if moment <= now - seconds:
            before.beat(moment)
    assert time.turned(seconds, now) == pytest.approx(time.at(now) - before.at(now - seconds))


@pytest.mark.virtual
async def test_limits_wait_for_a_loop_that_stood_still() -> None:
    """Two seconds of a limit are left after half a minute of nothing."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    with counted_loop_time(loop.time):
        began = loop_now()
        loop.call_later(1.0, loop.stand_still, 30.0)
        with pytest.raises(TimeoutError):
            async with limit(5.0):
                await asyncio.sleep(100.0)
        assert loop.time() == pytest.approx(34.75, abs=BEAT_SECONDS)
        assert loop_now() - began == pytest.approx(5.0, abs=BEAT_SECONDS)
        assert turned(loop.time()) == pytest.approx(5.0, abs=BEAT_SECONDS)
        loop.call_later(1.0, loop.stand_still, 30.0)
        async with limit_at(loop_now() + 5.0):
            await asyncio.sleep(4.0)


@pytest.mark.virtual
async def test_without_a_count_every_second_is_one() -> None:
    """As in a test, or a tool that serves nothing."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.stand_still(30.0)
    assert (loop_now(), turned(20.0)) == (30.0, 20.0)
    with pytest.raises(TimeoutError):
        async with limit(5.0):
            await asyncio.sleep(100.0)
    assert loop.time() == 35.0
