"""Pace: the same frames, at once or at the recorded moments."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.flows import SPECS
from contract.records import RunRecord
from cutover.replay.parts import Recording, Skipped, recording_of
from cutover.replay.play import Feeder, Pace, PlayOptions, TapeClock, play
from cutover.selftest.cases import case
from effects.tape import Tape
from effects.testing import World
from tests.support.flow_runs import STACKS, record
from tests.support.records import a_run


def recording(batch: list[RunRecord]) -> Recording:
    """Make an exchange ready."""
    ready = recording_of(tuple(batch), SPECS, lambda digest: digest.encode())
    assert isinstance(ready, Recording)
    return ready


@pytest.mark.untraced
@pytest.mark.slow
@pytest.mark.virtual
@pytest.mark.parametrize("stack", list(STACKS))
async def test_both_paces_give_the_recorded_frames(
    exchanges: list[list[RunRecord]], stack: str
) -> None:
    """On either stack, to the byte; the calls are the same ones in the same order."""
    for batch in exchanges[:60]:
        ready = recording(batch)
        for pace in ("full", "recorded"):
            played = await play(ready, STACKS[stack], PlayOptions(pace), ready.serving)
            was, now = ready.serving, played.record
            assert [text for _, text in now.frames] == [text for _, text in was.frames]
            assert (now.outcome, now.error) == (was.outcome, was.error)
            assert [it.entry for it in now.plays] == [it.entry for it in was.plays]


@pytest.mark.virtual
@pytest.mark.parametrize("pace", ["full", "recorded"])
async def test_frames_bear_the_moments_of_the_tape(
    exchanges: list[list[RunRecord]], pace: Pace
) -> None:
    """At full pace by the tape's clock, at the recorded one because it is kept."""
    ready = recording(exchanges[12])
    played = await play(ready, STACKS["legacy"], PlayOptions(pace), ready.serving)
    was = [at for at, _ in ready.serving.frames]
    now = [at for at, _ in played.record.frames]
    assert was[-1] > 0
    assert all(abs(a - b) <= 5 for a, b in zip(was, now, strict=True))


@pytest.mark.virtual
async def test_a_feeder_gives_back_the_tape_it_was_given() -> None:
    """Same entries, same order, same items, same ends; and it takes as long as it took."""
    first, _ = await record(STACKS["legacy"], case(12))
    source = Tape.load(first.tape)
    feeder = Feeder(source)
    loop = asyncio.get_running_loop()
    began = loop.time()
    exchange = World().exchange(feeder.tape)
    await feeder.feed(exchange)
    assert feeder.tape.record() == source.record()
    assert not feeder.tape.recording
    assert loop.time() - began == pytest.approx(source.last_stamp / 1_000_000, abs=0.001)


@given(st.lists(st.integers(0, 2**52)))
def test_a_tape_clock_never_goes_back_and_loses_no_microsecond(moments: list[int]) -> None:
    """Its seconds, as an exchange reads them, are its microseconds."""
    clock = TapeClock()
    newest = 0
    for at in moments:
        clock.advance(at)
        newest = max(newest, at)
        if newest < 2**42:  # fifty days; beyond, a float has no microseconds left
            assert int((clock.seconds() - TapeClock().seconds()) * 1_000_000 + 0.01) == newest


def test_a_run_without_tape_or_request_is_skipped() -> None:
    """A tape that had outgrown its bounds is not written down."""
    assert not isinstance(recording_of((a_run(),), SPECS, lambda _: b""), Recording)


def test_a_declared_flow_has_nothing_here_to_run() -> None:
    """That is said, and is no damage."""
    found = recording_of((a_run(flow="support"),), SPECS, lambda _: b"", {"support"})
    assert isinstance(found, Skipped)
    assert (found.reason, found.unread) == (
        "flow 'support' is declared: its services are not here to run",
        False,
    )
