"""Whatever happens to a session, its history is a plain model's: nothing lost, nothing doubled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from decimal import Decimal
from typing import Any, Literal, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from contract.flow import Event, Flow, Request
from contract.model import AssistantMessage, Chunk, ModelCall, UserMessage
from contract.ports import Effects
from cutover.selftest.cases import Answer
from effects.model import ScriptedModel, Wait
from effects.testing import VirtualLoop, World
from effects.tools import ScriptedTools
from graph_impl import FLOWS as GRAPH
from legacy import FLOWS as LEGACY
from router.problems import Problem
from router.stack import StackName
from rules.questions import NAME
from tests.support.companion_turns import FORM, MEMORIES, Place, calling, image, turn
from tests.support.pausing_flow import Reply

T = TypeVar("T")
Kind = Literal["plain", "tool", "ask"]

STACKS: st.SearchStrategy[StackName] = st.sampled_from(["legacy", "graph"])
CRASHES = st.sampled_from([0, 0, 1, 2, 3])
ASKED: Answer = calling((NAME, FORM), text="which? ")
PAYING: Answer = calling(("pay", "{}"), text="paying ")
SAID: Answer = (Wait(1.0), Chunk(text="do"), Wait(1.0), Chunk(text="ne"), Chunk(finish="stop"))
SEEN: Answer = (Chunk(text="a"), Wait(1.0), Chunk(text=" b"), Chunk(finish="stop"))
ROUNDS: dict[str, tuple[Answer, ...]] = {
    "plain": (SAID,),
    "tool": (PAYING, SAID),
    "ask": (ASKED, PAYING, SAID),
}
WHOLE = {"plain": "done", "tool": "paying done", "ask": "which? paying done"}


def script(call: ModelCall) -> Answer:
    """Answer by what the user has said last, and by the round."""
    if call.json_object:
        return MEMORIES
    asked = next(it for it in reversed(call.messages) if isinstance(it, UserMessage))
    if not isinstance(asked.content, str):
        return SEEN
    after = call.messages[call.messages.index(asked) :]
    rounds = sum(isinstance(it, AssistantMessage) for it in after)
    return ROUNDS[asked.content.split()[0]][rounds]


class Histories(RuleBasedStateMachine):
    """Turns, questions, answers, crashes and restarts, on a router and on a list."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.crash_after = 0
        self.number = 0
        self.kept: list[tuple[str, str]] = []
        self.done = 0
        self.paid = 0
        self.written = 0
        self.waiting = ""
        self.question = ""
        self.action = ""

    @initialize()
    def open(self) -> None:
        """Start a router over an empty world."""
        tools = ScriptedTools({"pay": "paid"}, slow={"pay": 1.0}, writes=["pay"])
        self.world = World(ScriptedModel(script), tools=tools)
        self.place = self.run(self._place())

    async def _place(self) -> Place:
        place = Place(
            self.world,
            legacy=self.crashing(LEGACY["companion"]),
            graph=self.crashing(GRAPH["companion"]),
        )
        place.shadow = Decimal(100)
        return place

    def run(self, made: Coroutine[Any, Any, T]) -> T:
        """Run something on the machine's own loop."""
        return self.runner.run(made)

    def crashing(self, flow: Flow) -> Flow:
        """Crash, once, when as many frames have been sent as the step wants."""

        async def broken(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
            sent = 0
            async for event in flow(request, effects):
                yield event
                sent += 1
                if sent == self.crash_after and not effects.rehearsal:
                    self.crash_after = 0
                    raise RuntimeError

        return broken

    @rule(kind=st.sampled_from(["plain", "tool", "ask"]), stack=STACKS, crash=CRASHES)
    def say(self, kind: Kind, stack: StackName, crash: int) -> None:
        """Take a turn; it ends, or it waits."""
        message = self.begin(f"{kind} {self.number}", stack, crash)
        reply = self.run(self.place.visit(turn(message)))
        self.paid += kind == "tool"
        self.done += 2 if kind == "tool" else 1
        if kind == "ask":
            self.paused(reply, kind)
        else:
            self.ended(reply, WHOLE[kind])

    @rule(stack=STACKS, crash=CRASHES)
    def show(self, stack: StackName, crash: int) -> None:
        """Show a picture to be remembered; it waits."""
        self.begin("[图片]", stack, crash)
        self.done += 2
        self.paused(self.run(self.place.visit(image())), "picture")

    @rule(stack=STACKS)
    def leave(self, stack: StackName) -> None:
        """Leave in the middle of a turn: what was said is kept, the half answer is not."""
        message = self.begin(f"plain {self.number}", stack, 0)
        self.run(self.place.visit(turn(message), leaves=2))

    def begin(self, message: str, stack: StackName, crash: int) -> str:
        """Note a turn: whatever waited is over."""
        self.number += 1
        self.kept.append(("user", message))
        self.waiting = self.action = ""
        self.place.assigned, self.crash_after = stack, crash
        return message

    def paused(self, reply: Reply, question: str) -> None:
        """See that a turn waits, and for what."""
        assert reply.events[-1] == {"type": "done", "status": "suspended"}
        self.waiting, self.question, self.action = reply.hitl_id, question, ""

    def ended(self, reply: Reply, whole: str) -> None:
        """See that a turn has ended."""
        assert reply.events[-1] == {"type": "done", "status": "completed"}
        self.kept.append(("assistant", whole))

    @precondition(lambda self: self.waiting and not self.action)
    @rule(action=st.sampled_from(["approve", "reject"]))
    def answer(self, action: str) -> None:
        """Answer what waits, twice."""
        self.run(self.place.answer(self.waiting, action))
        self.run(self.place.answer(self.waiting, action))
        self.action = action

    @precondition(lambda self: self.action)
    @rule(stack=STACKS, crash=st.sampled_from([0, 0, 3, 4]))
    def go_on(self, stack: StackName, crash: int) -> None:
        """Go on from what was answered, to the end."""
        self.place.assigned, self.crash_after = stack, crash
        self.finished(self.run(self.place.go_on(self.waiting)))

    @precondition(lambda self: self.action)
    @rule(stack=STACKS)
    def go_on_twice(self, stack: StackName) -> None:
        """Two go on at once: one does."""
        self.place.assigned = stack
        replies = self.run(self._twice())
        (lost,) = (it for it in replies if isinstance(it, Problem))
        (won,) = (it for it in replies if isinstance(it, Reply))
        assert lost.status == 409
        self.finished(won)

    async def _twice(self) -> tuple[Reply | BaseException, ...]:
        going = (self.place.go_on(self.waiting), self.place.go_on(self.waiting))
        return await asyncio.gather(*going, return_exceptions=True)

    @precondition(lambda self: self.action and self.question == "ask")
    @rule(stack=STACKS)
    def go_on_and_leave(self, stack: StackName) -> None:
        """Leave while it goes on, in the middle of an answer: the next client gets it all."""
        if self.question == "ask":
            self.place.assigned = stack
            self.run(self.place.go_on(self.waiting, leaves=4))
            self.left()

    def left(self) -> None:
        """Note what had ended by then: a question to the model, a payment."""
        self.question = "ask, paid"
        self.done += 1
        self.paid += 1

    def finished(self, reply: Reply) -> None:
        """See that what waited has ended, and was done once."""
        told = {"approve": "\n\n已记住 2 条。", "reject": "\n\n好的，这些内容没有保存。"}
        if self.question == "picture":
            new = self.action == "approve" and not self.written
            said = told[self.action] if new or self.action == "reject" else "\n\n已记住 0 条。"
            self.written += self.action == "approve"
            self.ended(reply, f"a b{said}")
        else:
            self.ended(reply, WHOLE["ask"])
            self.paid += self.question == "ask"
            self.done += 2 if self.question == "ask" else 1
        self.waiting = self.action = ""

    @precondition(lambda self: self.waiting)
    @rule()
    def try_unanswered(self) -> None:
        """A question without an answer cannot be gone on from."""
        if not self.action:
            with pytest.raises(Problem, match="unanswered"):
                self.run(self.place.go_on(self.waiting))

    @rule()
    def restart(self) -> None:
        """Begin anew over the same stores."""
        self.run(self._restart())

    async def _restart(self) -> None:
        self.place.start()

    @invariant()
    def history_is_the_models(self) -> None:
        """And every call was made once."""
        if not hasattr(self, "place"):
            return
        assert self.place.kept == self.kept
        assert self.world.tools.called == ["pay"] * self.paid
        assert self.world.count("memory.write") == self.written
        model = self.world.model
        assert len(model.calls) - model.cancelled == self.done
        # What the other stack does on the tape is the same, frame by frame and effect by effect.
        states = {(line.state, line.reason) for line in self.place.router.ledger.counts}
        assert ("compared", "different") not in states

    def teardown(self) -> None:
        """Close the loop."""
        self.runner.close()


Histories.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestHistories = pytest.mark.slow(Histories.TestCase)
