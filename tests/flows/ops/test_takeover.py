"""A stack breaks anywhere in a turn of ops, or shadows one: each effect is made once."""

from __future__ import annotations

import pytest

from contract.flow import Flow
from contract.flows.ops import OPS
from graph_impl import FLOWS as GRAPH
from legacy import FLOWS as LEGACY
from router.stack import StackName
from tests.support.faulty_stacks import Act, Tripwire, after, crash, hang
from tests.support.ops_turns import DISK, FINAL, MEMORY, RESTART, UNHEALTHY, YES, shift, steps
from tests.support.router_world import House, Rules

pytestmark = pytest.mark.virtual

FLOWS: dict[StackName, Flow] = {"legacy": LEGACY["ops"], "graph": GRAPH["ops"]}
each_stack = pytest.mark.parametrize("assigned", ["legacy", "graph"])
DEPLOY = '{"worker":"deploy","action":"run"}'


def house(assigned: StackName, flow: Flow, *, shadow: float = 0.0) -> House:
    """Build a house whose assigned stack has a flow of its own; decisions come at once."""
    turn = shift(
        *("hm", steps(DISK, MEMORY), steps(RESTART, DEPLOY), FINAL),
        human=(YES, YES),
        workers=UNHEALTHY,
    )
    rules = Rules(assigned=assigned, spec=OPS, shadow=shadow, flow={"route_key": "session_id"})
    if assigned == "legacy":
        return House(turn, rules, legacy=flow)
    return House(turn, rules, graph=flow)


async def undisturbed(assigned: StackName) -> tuple[list[bytes], list[tuple[str, str]]]:
    """Return the stream as it is when nothing breaks, and the calls."""
    async with house(assigned, FLOWS[assigned]) as quiet:
        return (await quiet.ask()).wire, quiet.world.made


@each_stack
@pytest.mark.parametrize("act", [crash, hang], ids=["crash", "hang"])
async def test_it_breaks_after_any_frame(assigned: StackName, act: Act) -> None:
    """The client has one unbroken stream, and nothing is done twice."""
    whole, calls = await undisturbed(assigned)
    assert len(whole) == 22
    for frames in range(len(whole)):
        async with house(assigned, after(FLOWS[assigned], frames, act)) as made:
            served = await made.ask()
            assert served.wire == whole
            assert made.world.made == calls
            assert [run.role for run in made.runs] == ["serving", "fallback"]
            assert len(made.world.workers.calls) == 8


@pytest.mark.slow
@pytest.mark.untraced
@each_stack
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_it_breaks_at_any_call(assigned: StackName, done: bool) -> None:
    """Before a port call is made, and after it was answered, also of one of two workers."""
    whole, calls = await undisturbed(assigned)
    counting = Tripwire(-1, crash, done=False)
    async with house(assigned, counting.flow(FLOWS[assigned])) as made:
        await made.ask()
    assert counting.calls > len(calls) / 2
    for at in range(counting.calls):
        wire = Tripwire(at, crash, done=done)
        async with house(assigned, wire.flow(FLOWS[assigned])) as made:
            served = await made.ask()
            assert served.wire == whole
            assert sorted(made.world.made) == sorted(calls)
            assert served.stream.served_by.name != assigned


@each_stack
async def test_a_shadow_executes_no_worker(assigned: StackName) -> None:
    """It runs on the tape: workers are called, and the log is written, by the served run alone."""
    whole, calls = await undisturbed(assigned)
    async with house(assigned, FLOWS[assigned], shadow=100) as made:
        served = await made.ask()
        assert served.wire == whole
        assert made.world.made == calls
        assert made.states == {"compared(equal)": 1}
        serving, shadow = made.runs
        assert (serving.role, shadow.role) == ("serving", "shadow")
        assert {play.how for play in shadow.plays} == {"exact"}
        assert list(shadow.nodes) == list(serving.nodes)
        assert len(made.world.workers.calls) == len(made.world.workers.ended) == 8
