"""Turns of a session whose assigned stack breaks anywhere, on a whole router."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from contract.flow import Flow
from graph_impl import FLOWS as GRAPH
from legacy import FLOWS as LEGACY
from router.stack import StackName
from tests.support.faulty_stacks import Act, Tripwire, after, crash, hang
from tests.support.router_world import House, Rules, Served, Situation, house_with

each_stack = pytest.mark.parametrize("assigned", ["legacy", "graph"])
each_act = pytest.mark.parametrize("act", [crash, hang], ids=["crash", "hang"])
each_side = pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
"""Whether a stack breaks before a port call is made, or after it was answered."""


@dataclass(frozen=True)
class BreakingTurn:
    """A turn that is taken again and again, each time in a new world: `make` builds it."""

    make: Callable[[], Situation]

    async def take(
        self,
        assigned: StackName,
        change: Callable[[Flow], Flow] = lambda flow: flow,
        *,
        shadow: float = 0.0,
    ) -> tuple[House, Served]:
        """Take the turn; returns the house, closed, and what the client saw.

        `change` makes the assigned stack's flow of the built-in one.
        """
        turn = self.make()
        built_in = {"legacy": LEGACY, "graph": GRAPH}[assigned][turn.spec.name]
        rules = Rules(assigned=assigned, shadow=shadow)
        async with house_with(turn, rules, change(built_in)) as house:
            return house, await house.ask()

    async def break_after_frames(
        self, assigned: StackName, act: Act, count: int
    ) -> list[tuple[House, Served]]:
        """Take it with a stack that breaks after 0 frames, after one, and so on: `count` times."""
        return [
            await self.take(assigned, partial(after, events=at, act=act)) for at in range(count)
        ]

    async def break_at_calls(
        self, assigned: StackName, *, done: bool
    ) -> list[tuple[House, Served]]:
        """Take it with a stack that breaks at its first port call, at its second, at each."""
        counting = Tripwire(-1, crash, done=False)
        await self.take(assigned, counting.flow)
        wires = [Tripwire(at, crash, done=done) for at in range(counting.calls)]
        return [await self.take(assigned, wire.flow) for wire in wires]

    async def mirror(self, assigned: StackName) -> House:
        """Take it with a shadow that must do all the same, and call nothing; returns the house."""
        quiet, undisturbed = await self.take(assigned)
        made, served = await self.take(assigned, shadow=100)
        assert served.wire == undisturbed.wire
        assert made.world.made == quiet.world.made
        assert made.states == {"compared(equal)": 1}
        serving, shadow = made.runs
        assert (serving.role, shadow.role) == ("serving", "shadow")
        assert [text for _, text in shadow.frames] == [text for _, text in serving.frames]
        assert {play.how for play in shadow.plays} == {"exact"}
        assert list(shadow.nodes) == list(serving.nodes)
        return made
