"""Takeover: a stack breaks anywhere in a stream, and the client sees one unbroken stream."""

from __future__ import annotations

import pytest

from contract.records import RunRecord
from router.stack import StackName
from tests.support.faulty_stacks import (
    Act,
    Sleeper,
    Tripwire,
    after,
    cancelled,
    crash,
    dawdle,
    hang,
)
from tests.support.router_world import STALL, House, Served
from tests.support.tool_replies import ASSIGNED, FLOWS, house, nothing_twice, undisturbed

pytestmark = [pytest.mark.virtual, pytest.mark.slow]


def recorded(
    made: House, assigned: StackName, reason: str, sent: int
) -> tuple[RunRecord, RunRecord]:
    """Check the two lines of a takeover."""
    first, second = made.runs
    other = "graph" if assigned == "legacy" else "legacy"
    for line in (first, second):
        assert (line.assigned, line.served, line.reason) == (assigned, other, reason)
    assert (first.role, first.stack, first.sent) == ("serving", assigned, 0)
    assert (second.role, second.stack, second.sent) == ("fallback", other, sent)
    assert first.tape is not None
    assert second.tape is None
    assert second.outcome == "completed"
    assert len(first.frames) == sent
    assert {play.entry for play in second.plays} == {entry.seq for entry in first.tape}
    return first, second


def commented(served: Served, assigned: StackName, sent: int) -> None:
    """Check that the change is said once, where it happened, and only after the commit point."""
    other = b"legacy l1" if assigned == "graph" else b"graph g1"
    expected = [b": served-by " + other + b"\n\n"] if sent else []
    assert served.comments == expected
    if sent:
        assert served.frames[sent][1] == expected[0]


@pytest.mark.untraced
@pytest.mark.parametrize("assigned", ASSIGNED)
@pytest.mark.parametrize("act", [crash, cancelled, hang], ids=["crash", "cancelled", "hang"])
async def test_it_breaks_after_any_frame(assigned: StackName, act: Act) -> None:
    """The bytes are those of the undisturbed stream, and nothing is done twice."""
    whole = await undisturbed(assigned)
    assert len(whole) > 12
    for index in range(len(whole)):
        async with house(assigned, after(FLOWS[assigned], index, act), shadow=100) as made:
            served = await made.ask()
            assert served.wire == whole
            commented(served, assigned, index)
            nothing_twice(made)
            reason = "stall" if act is hang else "crash"
            first, second = recorded(made, assigned, reason, index)
            assert first.outcome == ("timeout" if act is hang else "failed")
            assert first.lost_us == second.lost_us
            assert act is not hang or STALL <= first.lost_us / 1e6 <= 2.5 * STALL
            assert made.states == {f"cancelled({'takeover' if index else 'fallback'})": 1}
            made.router.feedback(served.exchange, 1, None)
            (thought,) = made.captured.feedbacks
            assert (thought.exchange, thought.assigned) == (first.exchange, assigned)


@pytest.mark.untraced
@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_it_wakes_up_later_and_goes_on(assigned: StackName) -> None:
    """Everything it asks for is refused: it is fenced, and nothing of it reaches the client."""
    whole = await undisturbed(assigned)
    for index in range(len(whole)):
        sleeper = Sleeper(60.0)
        async with house(assigned, after(FLOWS[assigned], index, sleeper)) as made:
            served = await made.ask()
            assert served.wire == whole
            commented(served, assigned, index)
            await dawdle(90.0)(made.world.effects)
        assert sleeper.woke
        nothing_twice(made)


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_hang_shorter_than_the_limit_is_no_takeover(assigned: StackName) -> None:
    """It goes on by itself, and the bytes are the same."""
    whole = await undisturbed(assigned)
    for index in range(len(whole)):
        slow = after(FLOWS[assigned], index, dawdle(STALL - 1))
        async with house(assigned, slow) as made:
            served = await made.ask()
            assert served.wire == whole
            assert (served.comments, len(made.runs)) == ([], 1)
            nothing_twice(made)


@pytest.mark.untraced
@pytest.mark.parametrize("assigned", ASSIGNED)
@pytest.mark.parametrize("act", [crash, hang], ids=["crash", "hang"])
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_it_breaks_at_any_call(assigned: StackName, act: Act, done: bool) -> None:
    """Before a port call is made, and after it was answered."""
    whole = await undisturbed(assigned)
    counting = Tripwire(-1, crash, done=False)
    async with house(assigned, counting.flow(FLOWS[assigned])) as made:
        await made.ask()
    assert counting.calls >= 12
    for at in range(counting.calls):
        wire = Tripwire(at, act, done=done)
        async with house(assigned, wire.flow(FLOWS[assigned])) as made:
            served = await made.ask()
            assert served.wire == whole
            nothing_twice(made)
            assert len(served.comments) <= 1
            assert served.stream.served_by.name != assigned
