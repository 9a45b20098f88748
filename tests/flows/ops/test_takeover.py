"""A stack breaks anywhere in a turn of ops, or shadows one: each effect is made once."""

from __future__ import annotations

import pytest

from router.stack import StackName
from tests.support.faulty_stacks import Act
from tests.support.ops_turns import DISK, FINAL, MEMORY, RESTART, UNHEALTHY, YES, shift, steps
from tests.support.takeovers import BreakingTurn, each_act, each_side, each_stack

pytestmark = pytest.mark.virtual

DEPLOY = '{"worker":"deploy","action":"run"}'
TURN = BreakingTurn(
    lambda: shift(
        *("hm", steps(DISK, MEMORY), steps(RESTART, DEPLOY), FINAL),
        human=(YES, YES),
        workers=UNHEALTHY,
    )
)
"""Its decisions come at once."""


@each_stack
@each_act
async def test_it_breaks_after_any_frame(assigned: StackName, act: Act) -> None:
    """The client has one unbroken stream, and nothing is done twice."""
    quiet, undisturbed = await TURN.take(assigned)
    assert len(undisturbed.wire) == 22
    for made, served in await TURN.break_after_frames(assigned, act, 22):
        assert served.wire == undisturbed.wire
        assert made.world.made == quiet.world.made
        assert [run.role for run in made.runs] == ["serving", "fallback"]
        assert len(made.world.workers.calls) == 8


@pytest.mark.slow
@pytest.mark.untraced
@each_stack
@each_side
async def test_it_breaks_at_any_call(assigned: StackName, done: bool) -> None:
    """Before a port call is made, and after it was answered, also of one of two workers."""
    quiet, undisturbed = await TURN.take(assigned)
    broken = await TURN.break_at_calls(assigned, done=done)
    assert len(broken) > len(quiet.world.made) / 2
    for made, served in broken:
        assert served.wire == undisturbed.wire
        assert sorted(made.world.made) == sorted(quiet.world.made)
        assert served.stream.served_by.name != assigned


@each_stack
async def test_a_shadow_executes_no_worker(assigned: StackName) -> None:
    """It runs on the tape: workers are called, and the log is written, by the served run alone."""
    made = await TURN.mirror(assigned)
    assert len(made.world.workers.calls) == len(made.world.workers.ended) == 8
