"""Kills while an exchange goes on from a pause, at any step: nothing twice, each outcome told.

From the moment of a kill on nothing that its process calls reaches the world: that is all of a kill
that anything outside can see.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from contract.errors import EffectFailed, Fault
from contract.flow import Event, Request
from contract.human import OpenQuestion
from contract.model import ToolCall, ToolResult
from contract.ports import Effects
from contract.stores import MemoryEntry, Revision
from contract.workers import WorkerCall, WorkerResult, WorkerUpdate
from effects.memory import InMemoryMemory
from effects.model import Wait
from effects.stores import Pause
from effects.testing import VirtualLoop, World
from effects.tools.fake import ScriptedTools
from effects.workers import ScriptedWorkers
from router.problems import Problem
from router.resume.pauses import Pauses
from router.stack import StackName
from tests.support.pausing_flow import (
    DAY,
    QUESTION,
    Ask,
    Asked,
    Desk,
    Done,
    Options,
    Said,
    SteppedPauses,
)

Step = Literal["pay", "two", "set", "look", "work", "learn", "ask"]

LEASE_OVER_S = 31.0
STEPS: tuple[Step, ...] = get_args(Step)
STACKS: tuple[StackName, ...] = ("legacy", "graph")
GONE = EffectFailed(Fault("store_unavailable"))


@dataclass
class Life:
    """The steps a process has left: it is killed before or after one of its calls."""

    left: int

    def step(self) -> None:
        """Live one step longer; raises once it is killed."""
        self.left -= 1
        if self.left < 0:
            raise GONE

    @property
    def over(self) -> bool:
        """Whether it has been killed."""
        return self.left < 0


class DyingTools(ScriptedTools):
    """Tools whose runs are counted by call, as the world has seen them."""

    def __init__(self, ran: Counter[str], life: Life) -> None:
        tools = ("pay", "set", "look")
        slow = dict.fromkeys(tools, 0.5)
        super().__init__(
            dict.fromkeys(tools, "done"), slow=slow, writes=tools[:2], idempotent=("set",)
        )
        self._ran = ran
        self._life = life

    async def run(self, site: str, call: ToolCall) -> ToolResult:
        """Run once more."""
        self._life.step()
        self._ran[call.id] += 1
        result = await super().run(site, call)
        self._life.step()
        return result


class DyingWorkers(ScriptedWorkers):
    """Workers that report half their work; counted like the tools."""

    def __init__(self, ran: Counter[str], life: Life) -> None:
        super().__init__({"disk.check": ("half", Wait(0.5), WorkerResult(ok=True, message="done"))})
        self._ran = ran
        self._life = life

    async def run(self, site: str, call: WorkerCall) -> AsyncIterator[WorkerUpdate]:
        """Run once more."""
        self._life.step()
        self._ran[f"work {call.args['number']}"] += 1
        async for update in super().run(site, call):
            yield update
            self._life.step()


class DyingMemory(InMemoryMemory):
    """The memory as such a process reaches it."""

    def __init__(self, entries: Iterable[MemoryEntry], life: Life) -> None:
        super().__init__(entries)
        self.life = life

    async def write(
        self, site: str, entries: tuple[MemoryEntry, ...], revision: Revision | None = None
    ) -> int:
        """Store entries."""
        self.life.step()
        written = await super().write(site, entries, revision)
        self.life.step()
        return written


@dataclass
class Outside:
    """What outlives every process; `told` is what clients got by tool call, in their order."""

    plan: list[Step]
    stored: dict[str, Pause] = field(default_factory=dict)
    ran: Counter[str] = field(default_factory=Counter)
    memory: DyingMemory = field(default_factory=lambda: DyingMemory((), Life(0)))
    told: dict[str, list[str]] = field(default_factory=dict)
    reported: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def tell(self, life: Life, call: str, outcome: str) -> Event:
        """Note what a client gets, unless its router has been killed; returns the frame."""
        if not life.over:
            self.told.setdefault(call, []).append(outcome)
        return Said(outcome)

    def process(self, steps: int) -> Desk:
        """Start a router that is killed after so many steps."""
        life, now = Life(steps), asyncio.get_running_loop().time
        self.memory.life = life

        async def flow(request: Request[Ask, Options], effects: Effects) -> AsyncIterator[Event]:
            await effects.locks.acquire("turn", f"session:{request.body.session_id}", 5.0)
            for number, step in enumerate(self.plan):
                async for event in self._take(life, effects, step, number):
                    yield event
            yield Done("completed")

        async def eager(request: Request[Ask, Options], effects: Effects) -> AsyncIterator[Event]:
            async for event in flow(request, effects):
                await asyncio.sleep(0)
                yield event

        pauses = SteppedPauses(now, lambda _: life.step(), self.stored)
        tools = DyingTools(self.ran, life)
        workers = DyingWorkers(self.ran, life)
        world = World(tools=tools, workers=workers, memory=self.memory)
        desk = Desk(world, legacy=flow, graph=eager, pauses=pauses)
        desk.router = desk.start(
            pauses=Pauses(pauses, DAY, now, lambda _flow, _pause, tool: self.reported.append(tool))
        )
        return desk

    async def _take(
        self, life: Life, effects: Effects, step: Step, number: int
    ) -> AsyncIterator[Event]:
        match step:
            case "pay" | "set" | "look":
                call = ToolCall(f"{step} {number}", step, "{}")
                yield self.tell(life, call.id, outcome(await effects.tools.run("tool", call)))
            case "two":
                calls = [ToolCall(f"pay {number} {one}", "pay", "{}") for one in "ab"]
                running = (effects.tools.run("tool", call) for call in calls)
                for call, result in zip(calls, await asyncio.gather(*running), strict=True):
                    yield self.tell(life, call.id, outcome(result))
            case "work":
                check = WorkerCall("disk", "check", {"number": number})
                async for update in effects.workers.run("execute", check):
                    if (work := update.result) is not None:
                        yield self.tell(life, f"work {number}", work.code or work.message)
            case "learn":
                fresh = await effects.ids.new("memory")
                entry = MemoryEntry(memory_id=fresh, user_id="u", text=f"fact {number} {fresh}")
                await effects.memory.write("learn", (entry,))
            case "ask":
                question = OpenQuestion(QUESTION, "confirm", "s")
                hitl_id = await effects.human.open(f"ask {number}", question)
                if not life.over:
                    self.asked.append(hitl_id)
                yield Asked(hitl_id)
                await effects.human.answer(f"ask {number}", hitl_id)


def outcome(result: ToolResult) -> str:
    """Return what a client is told of a tool."""
    return result.error or result.content


class Kills(RuleBasedStateMachine):
    """One exchange, resumed again and again by routers that are killed."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.outside = Outside([])
        self.done = False
        self.kills = 0

    @initialize(plan=st.lists(st.sampled_from(STEPS), max_size=6))
    def begin(self, plan: list[Step]) -> None:
        """Take a turn that asks, and is followed by a plan."""
        self.outside = Outside(["ask", *plan])
        self.runner.run(self.ask())

    async def ask(self) -> None:
        """Take the turn."""
        reply = await self.outside.process(1_000).ask()
        assert reply.said[-1] == "suspended"

    @precondition(lambda self: not self.done)
    @rule(steps=st.integers(0, 60), stack=st.sampled_from(STACKS), older=st.booleans())
    def resume(self, steps: int, stack: StackName, *, older: bool) -> None:
        """Answer and continue the last question, or one before it, with a router that dies."""
        self.kills += 1
        asked = self.outside.asked
        self.runner.run(self.resumed(asked[0] if older else asked[-1], steps, stack))

    async def resumed(self, hitl_id: str, steps: int, stack: StackName) -> Any:
        """Answer and continue a question; returns what its client got."""
        await asyncio.sleep(LEASE_OVER_S)
        desk = self.outside.process(steps)
        desk.assigned = stack
        try:
            await desk.answer(hitl_id)
            return await desk.go_on(hitl_id)
        except Problem as problem:
            return problem.code

    @invariant()
    def nothing_is_done_twice(self) -> None:
        """No payment is made twice, and none is told that was not made."""
        for call, outcomes in self.outside.told.items():
            if "outcome_unknown" in outcomes:
                assert set(outcomes) == {"outcome_unknown"}
                assert ("disk.check" if "work" in call else "pay") in self.outside.reported
            else:
                assert set(outcomes) == {"done"}
                assert self.outside.ran[call]
        once = (n for call, n in self.outside.ran.items() if call.startswith(("pay", "work")))
        assert set(once) <= {1}

    def teardown(self) -> None:
        """Whatever happened: it comes to its end, and every outcome has been told."""
        if self.outside.plan:
            self.runner.run(self.ends())
            self.nothing_is_done_twice()
            unknown = sum("outcome_unknown" in one for one in self.outside.told.values())
            assert unknown <= 2 * self.kills
        self.runner.close()

    async def ends(self) -> None:
        """Continue every question that is left, until none can be continued."""
        for _ in range(2 + len(self.outside.plan)):
            for hitl_id in tuple(self.outside.asked):
                await self.resumed(hitl_id, 10_000, "legacy")
        plan = self.outside.plan
        alone = {"pay", "set", "look", "work"}
        due = [f"{step} {n}" for n, step in enumerate(plan) if step in alone]
        due += [f"pay {n} {one}" for n, step in enumerate(plan) if step == "two" for one in "ab"]
        assert set(self.outside.told) == set(due)
        assert len(self.outside.memory.entries) == plan.count("learn")


@pytest.mark.slow
@pytest.mark.untraced
def test_no_kill_does_anything_twice() -> None:
    """At whichever step it comes, on whichever stack, however often."""
    run_state_machine_as_test(Kills, settings=settings(stateful_step_count=8))
