"""A stack breaks anywhere in a pipeline's turn, or shadows one: each effect is made once."""

from __future__ import annotations

import pytest

from contract.flows.pipeline import PipelineOptions
from router.stack import StackName
from tests.support.faulty_stacks import Act
from tests.support.pipeline_turns import KNOWN, Talk, body, house
from tests.support.takeovers import BreakingTurn, each_act, each_side, each_stack

pytestmark = pytest.mark.virtual

TURN = BreakingTurn(
    lambda: Talk(
        body=body("Do you remember the park? Bye!", user_name="Maya"),
        options=PipelineOptions(token_limit=10),
        house=house("earlier", "reply"),
        tokens=lambda _: 3,
    )
)
"""It ends with a notice."""


@each_stack
@each_act
async def test_it_breaks_after_any_frame(assigned: StackName, act: Act) -> None:
    """The client has one unbroken stream, and nothing is done twice."""
    quiet, undisturbed = await TURN.take(assigned)
    assert len(undisturbed.wire) == 4
    broken = await TURN.break_after_frames(assigned, act, 4)
    for frames, (made, served) in enumerate(broken):
        assert served.wire == undisturbed.wire
        assert made.world.made == quiet.world.made
        assert [run.role for run in made.runs] == ["serving", "fallback"]
        assert len(served.comments) == (frames > 0)


@pytest.mark.slow
@pytest.mark.untraced
@each_stack
@each_side
async def test_it_breaks_at_any_call(assigned: StackName, done: bool) -> None:
    """Before a port call is made, and after it was answered."""
    quiet, undisturbed = await TURN.take(assigned)
    broken = await TURN.break_at_calls(assigned, done=done)
    assert len(broken) == 11
    for made, served in broken:
        assert served.wire == undisturbed.wire
        assert made.world.made == quiet.world.made
        assert served.stream.served_by.name != assigned


@each_stack
async def test_a_shadow_writes_nothing(assigned: StackName) -> None:
    """It runs on the tape: the calls are those of a turn without one, and both are equal."""
    case = (await TURN.mirror(assigned)).case
    assert isinstance(case, Talk)
    assert [turn.role for turn in case.house.conversations.turns] == ["user", "assistant"] * 2
    assert case.house.memory.entries == KNOWN
