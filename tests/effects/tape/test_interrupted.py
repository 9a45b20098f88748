"""Continuing that breaks off: what was done since the answer is kept, and never done again."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from contract.errors import EffectFailed, Fault, Paused
from contract.human import Form, HumanAnswer, OpenQuestion
from contract.model import ToolCall
from contract.operations import MODEL_STREAM, TOOLS_RUN
from effects.stores import MemoryPauses
from effects.tape import (
    PauseOrigin,
    PausingHuman,
    Tape,
    TapeSession,
    interrupted_tape,
    read_paused,
    resume,
)
from effects.testing import VirtualLoop, World
from effects.tools.fake import ScriptedTools
from tests.effects.tape.pausing import REQUEST, prompt, speaks

if TYPE_CHECKING:
    from contract.operations import Operation
    from contract.ports import Effects
    from effects.stores import Pause
    from effects.tape import Exchange

Step = Literal["write", "look", "speak", "id", "both", "ask"]
Plan = list[Step]
Stack = Literal["plain", "eager"]
Done = Counter[tuple[str, str, bytes]]

ANSWERS = (HumanAnswer("approve"), HumanAnswer("edit"), HumanAnswer("reject"))
YES = HumanAnswer("approve")
LEASE = 1_000.0


async def told(effects: Effects, number: int) -> str:
    """Let the model speak."""
    return "".join(
        [chunk.text async for chunk in effects.model.stream("reply", prompt(f"say {number}"))]
    )


async def run_tool(effects: Effects, name: str, number: int) -> str:
    """Run a tool."""
    return (await effects.tools.run("tool", ToolCall(f"{name}_{number}", name, "{}"))).content


def question(number: int) -> OpenQuestion:
    """Build the question of a step."""
    return OpenQuestion(Form(f"{number}?", ()), "confirm", session_id="s")


async def flow(effects: Effects, plan: Plan, stack: Stack) -> list[str]:
    """Do every step of a plan; what was learnt on the way is the result."""
    learnt: list[str] = []
    for number, step in enumerate(plan):
        match step:
            case "write" | "look":
                learnt.append(await run_tool(effects, step, number))
            case "speak":
                learnt.append(await told(effects, number))
            case "id":
                learnt.append(await effects.ids.new("id"))
            case "both" if stack == "plain":
                learnt += [await run_tool(effects, "write", number), await told(effects, number)]
            case "both":
                learnt += await asyncio.gather(
                    run_tool(effects, "write", number), told(effects, number)
                )
            case "ask":
                hitl_id = await effects.human.open("ask", question(number))
                learnt.append((await effects.human.answer("ask", hitl_id)).action)
    return learnt


class Shell:
    """Plays a plan over its pauses; `breaks` are the seconds after which parts break off."""

    def __init__(self, plan: Plan, stacks: list[Stack], breaks: list[float]) -> None:
        self.plan = plan
        self.stacks = stacks
        self.breaks = list(breaks)
        tools = ScriptedTools(
            {"write": [f"written {n}" for n in range(20)], "look": "seen"},
            slow={"write": 0.7, "look": 0.3},
            writes=("write",),
        )
        self.world = World(speaks, tools=tools)
        self.store = MemoryPauses(self.world.clock.time)
        self.done: Done = Counter()
        self.parts = 0

    async def begin(self) -> str | list[str] | None:
        """Play to the first question."""
        exchange = self.exchange(Tape())
        return await self.ended(exchange, TapeSession(exchange, "first"), None)

    async def play(self) -> list[str] | None:
        """Play to the end; every question is answered as soon as it is asked."""
        outcome = await self.begin()
        while isinstance(outcome, str):
            answer = ANSWERS[int(outcome.removeprefix("h")) % 3]
            assert await self.store.respond(outcome, answer) in {"accepted", "same"}
            outcome = await self.go_on(outcome)
        return outcome

    async def answered(self) -> Pause:
        """Play to the first question, and answer it."""
        assert await self.begin() == "h1"
        await self.store.respond("h1", YES)
        pause = await self.store.get("h1")
        assert pause is not None
        return pause

    async def go_on(self, hitl_id: str) -> str | list[str]:
        """Continue a pause: to the next one, to the end, or until it breaks off."""
        owner = f"part {self.parts}"
        assert await self.store.claim(hitl_id, owner, LEASE) == "claimed"
        pause = await self.store.get(hitl_id)
        assert pause is not None
        assert pause.answer is not None
        tape, answer = resume(pause, pause.answer)
        exchange = self.exchange(tape)
        run = TapeSession(exchange, owner, "resume", answer=answer)
        outcome = await self.ended(exchange, run, self.breaks.pop(0) if self.breaks else None)
        if outcome is not None:
            assert await self.store.finish(hitl_id, owner)
            return outcome
        done = interrupted_tape(read_paused(pause.tape).request, tape, answer)
        assert await self.store.release(hitl_id, owner, done)
        return hitl_id

    def exchange(self, tape: Tape) -> Exchange:
        """Open the exchange of a part; it goes on after what is on its tape."""
        self.parts += 1
        asking = PauseOrigin(f"x{self.parts}", "planned", "any", REQUEST)
        self.human = PausingHuman(
            self.store, tape, asking, wall=self.world.clock.time, new_id=self.new_id
        )
        live = self.world.live(human=self.human)
        return self.world.exchange(tape, live=live, after=tape.last_stamp)

    def new_id(self) -> str:
        """Name a question; one that broke off has its name on the tape."""
        return f"h{self.world.count('human.open')}"

    async def ended(
        self, exchange: Exchange, run: TapeSession, seconds: float | None
    ) -> str | list[str] | None:
        """Return the result of a part or the question it paused in; None when it broke off."""
        stack = self.stacks[self.parts % len(self.stacks)]
        outcome: str | list[str] | None = None
        try:
            async with asyncio.timeout(seconds):
                outcome = await flow(run.effects(), self.plan, stack)
        except Paused as paused:
            outcome = paused.hitl_id
        except TimeoutError:
            pass
        await exchange.close()
        await self.human.store_tape()
        self.note(run)
        return outcome

    def note(self, run: TapeSession) -> None:
        """Count what was performed for this part, and came to its end."""
        for play in run.plays:
            if play.how == "live" and play.entry is not None and play.entry.end == "complete":
                self.done[play.operation.label, play.site, play.args] += 1


steps = st.sampled_from(["write", "look", "speak", "id", "both", "ask"])
stacks = st.lists(st.sampled_from(["plain", "eager"]), min_size=1, max_size=3)
# Calls take 0.3 to 1 s; 0 breaks off before anything was asked.
breaks = st.lists(st.integers(0, 40).map(lambda tenths: tenths / 10), max_size=6)


@pytest.mark.slow
@given(st.lists(steps, max_size=6), st.lists(steps, max_size=6), stacks, breaks)
def test_nothing_done_is_done_again_wherever_it_breaks_off(
    before: Plan, after: Plan, stacks: list[Stack], breaks: list[float]
) -> None:
    """However often, on whichever stack: no call twice, and the result of one unbroken way."""
    plan: Plan = [*before, "ask", *after]
    broken = Shell(plan, stacks, breaks)
    whole = Shell(plan, ["plain"], [])
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(broken.play()) == runner.run(whole.play())
    assert broken.done == whole.done
    asked = plan.count("write") + plan.count("both")
    assert broken.world.tools.called.count("write") == asked
    assert broken.world.count("human.open") == plan.count("ask")


@pytest.mark.virtual
async def test_a_question_shown_before_it_broke_off_is_asked_once() -> None:
    """Continued again, the same question waits; a second one is refused as long as it does."""
    shell = Shell(["ask", "write", "ask"], ["plain"], [])
    pause = await shell.answered()
    tape, answer = resume(pause, YES)
    exchange = shell.exchange(tape)
    effects = TapeSession(exchange, "first", "resume", answer=answer).effects()
    assert await effects.human.open("ask", question(0)) == "h1"
    await effects.human.answer("ask", "h1")
    writing = asyncio.create_task(run_tool(effects, "write", 1))
    assert await effects.human.open("ask", question(2)) == "h2"
    writing.cancel()
    await exchange.close()
    await shell.human.store_tape()

    tape, answer = resume(replace(pause, tape=interrupted_tape(REQUEST, tape, answer)), YES)
    exchange = shell.exchange(tape)
    effects = TapeSession(exchange, "second", "resume", answer=answer).effects()
    assert await effects.human.open("ask", question(0)) == "h1"
    await effects.human.answer("ask", "h1")
    assert await effects.human.open("ask", question(2)) == "h2"
    with pytest.raises(EffectFailed) as failed:
        await effects.human.open("ask", question(3))
    assert failed.value.fault == Fault("second_question")
    with pytest.raises(Paused):
        await effects.human.answer("ask", "h2")
    await exchange.close()
    assert shell.world.tools.called == ["write"]

    asked = await shell.store.get("h2")
    assert asked is not None
    tape, _ = resume(asked, YES)
    assert [entry.end for entry in tape.at_site(TOOLS_RUN, "tool")] == ["complete"]


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("failed", "asked_anew"),
    [((MODEL_STREAM, MODEL_STREAM), [False, True]), ((MODEL_STREAM, TOOLS_RUN), [False, False])],
)
async def test_what_it_failed_in_last_is_asked_anew(
    failed: tuple[Operation, ...], asked_anew: list[bool]
) -> None:
    """What it went on after is not, for it was told so; nor is a tool, which may have done it."""
    shell = Shell(["ask"], ["plain"], [])
    tape, answer = resume(await shell.answered(), YES)
    for operation in failed:
        tape.add(operation, "site", b"{}", 1).close("error", 1, Fault("deadline"))
    kept = read_paused(interrupted_tape(REQUEST, tape, answer)).entries
    seqs = {entry.seq for entry in kept}
    assert [entry.seq not in seqs for entry in tape.entries[-2:]] == asked_anew


@pytest.mark.virtual
async def test_a_tape_that_outgrew_its_bounds_is_not_given_back() -> None:
    """What was done is not known any more: better an end than a call made twice."""
    shell = Shell(["ask", "speak"], ["plain"], [])
    pause = await shell.answered()
    tape, answer = resume(pause, YES, limit=1)
    with pytest.raises(EffectFailed) as failed:
        read_paused(interrupted_tape(REQUEST, tape, answer))
    assert failed.value.fault == Fault("outcome_unknown", data={"reason": "size"})
