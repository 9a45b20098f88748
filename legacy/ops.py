"""Flow `ops`, the old way: a loop over the steps of a turn, workers side by side in tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from contract.errors import EffectFailed
from contract.flow import Flow
from contract.flows.ops import OpsDone, OpsEvent, OpsFinal, OpsProgress, failed
from contract.ports import Effects
from contract.stores import Turn
from contract.workers import WorkerUpdate
from legacy.templates import FOLDER, read_prompts
from rules.ops import flow as rules
from rules.ops.instructions import STAGES, Instruction, InstructionOutcome, Portion, StepDecision
from rules.ops.intents import understand
from rules.prompts import Render

log = logging.getLogger(__name__)

Events = AsyncGenerator[OpsEvent]
_Queue = asyncio.Queue[OpsEvent | None]

DIAGRAM: Final = """graph TD;
	__start__ --> preprocess;
	preprocess --> reason;
	reason --> safety;
	safety -.-> approve;
	safety -.-> execute;
	approve -.-> deploy;
	approve -.-> error;
	approve -.-> execute;
	deploy --> check;
	execute --> check;
	check -.-> __end__;
	check -.-> error;
	check -.-> reason;
	error --> __end__;
"""
DEPLOYMENT: Final = """graph TD;
	__start__ --> plan;
	plan -.-> __end__;
	plan -.-> build;
	build -.-> __end__;
	build -.-> release;
	release -.-> __end__;
	release -.-> verify;
	verify -.-> __end__;
	verify -.-> rollback;
	rollback --> __end__;
"""


@dataclass(kw_only=True)
class OpsState:
    """A turn on its way; `outcomes` are those of all its steps, of this one from `begun` on.

    `by` approved what is carried out now; `rejected` is the instruction that ended the turn, `code`
    that of an effect that failed.
    """

    request: rules.OpsTurn
    effects: Effects
    turn: Turn
    iteration: int = 0
    decision: StepDecision = field(default_factory=StepDecision)
    batch: Portion = field(default_factory=Portion)
    outcomes: list[InstructionOutcome] = field(default_factory=list)
    begun: int = 0
    by: str = ""
    rejected: Instruction | None = None
    code: str = ""

    async def finish(self, reply: str) -> None:
        """Store the reply and release the session."""
        await rules.finish(
            self.request, self.effects, self.turn, reply, self.iteration, self.outcomes
        )


def ops(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    system = read_prompts("ops", prompts, rules.PROMPTS)["system"]

    async def flow(request: rules.OpsTurn, effects: Effects) -> AsyncIterator[OpsEvent]:
        with effects.trace.node("admission"):
            turn, earlier = await rules.admit(request, effects)
        state = OpsState(request=request, effects=effects, turn=turn)
        try:
            async with aclosing(_take(state, earlier, system)) as events:
                async for event in events:
                    yield event
        except EffectFailed as failure:
            for event in failed(failure.fault.code):
                yield event

    return flow


async def _take(state: OpsState, earlier: Sequence[Turn], system: Render) -> Events:
    """Take step after step, until the turn ends."""
    request, effects, node = state.request, state.effects, state.effects.trace.node
    with node("preprocess"):
        understood = understand(state.turn.content, earlier)
        messages = rules.lay_out(request, earlier, state.turn, understood.text, system)
    left: tuple[Instruction, ...] = ()
    while True:
        with node("reason"):
            if not left:
                state.iteration += 1
                state.begun, state.batch = len(state.outcomes), Portion()
                state.decision = await rules.decide(
                    request, effects, messages, understood, state.iteration
                )
                left = state.decision.instructions
        with node("safety"):
            state.by, serial = "", state.batch.serial
            state.batch = await rules.check_safety(request, effects, left, serial=serial)
        if state.batch.asks:
            async with aclosing(_approve(state)) as events:
                async for event in events:
                    yield event
        if state.rejected is not None:
            with node("error"):
                await state.finish(rules.rejection(request, state.rejected))
                yield OpsDone("rejected")
            return
        try:
            async with aclosing(_deploy(state) if state.batch.deploys else _execute(state)) as work:
                async for event in work:
                    yield event
        except EffectFailed as failure:
            state.code = failure.fault.code
        with node("check"):
            outcomes = state.outcomes[state.begun :]
            checked = rules.check(
                request,
                state.iteration,
                state.decision,
                state.batch.left,
                outcomes,
                failed=state.code,
            )
            if checked.next == "end":
                await state.finish(checked.final)
                yield OpsFinal(checked.final)
                yield OpsDone("completed")
                return
            left, messages = checked.left, messages + checked.observed
        if checked.next == "error":
            with node("error"):
                for event in failed(checked.code):
                    yield event
            return


async def _approve(state: OpsState) -> Events:
    """Ask for an approval; refuse what cannot be approved."""
    request, effects = state.request, state.effects
    (instruction,) = state.batch.now
    with effects.trace.node("approve"):
        if rules.asks(request):
            question = rules.approval(request, state.iteration, instruction)
            try:
                approval_id = await effects.human.open("approve", question)
            except EffectFailed as failure:
                log.warning("no approval can be asked for: %s", failure.fault.code)
            else:
                yield rules.step(state.iteration, instruction)
                yield rules.approval_required(approval_id, instruction)
                answer = await effects.human.answer("approve", approval_id)
                state.by = answer.by or ""
                if not await rules.accept(request, effects, state.iteration, instruction, answer):
                    state.rejected = instruction
                return
        state.batch = replace(state.batch, now=(rules.unapproved(instruction),))


async def _execute(state: OpsState) -> Events:
    """Carry out the instructions side by side; send their events in their order."""
    if not state.batch.now:
        with state.effects.trace.node("execute"):
            return
    async with _started(state) as running:
        for events, task in running:
            while (event := await events.get()) is not None:
                yield event
                events.task_done()
            await task


@asynccontextmanager
async def _started(state: OpsState) -> AsyncIterator[list[tuple[_Queue, asyncio.Task[None]]]]:
    """Start all instructions of a batch, each with the queue of its events; none survives."""
    running = []
    for instruction in state.batch.now:
        events: _Queue = asyncio.Queue()
        task = asyncio.create_task(_carry_out(state, instruction, events))
        task.add_done_callback(partial(_end, events))
        running.append((events, task))
    try:
        yield running
    finally:
        for _, task in running:
            task.cancel()
        await asyncio.gather(*(task for _, task in running), return_exceptions=True)


def _end(events: _Queue, _: asyncio.Task[None]) -> None:
    events.put_nowait(None)


async def _carry_out(state: OpsState, instruction: Instruction, events: _Queue) -> None:
    with state.effects.trace.node("execute"):
        carried_out = _events(state, "execute", instruction, events.join)
        async with aclosing(carried_out) as own:
            async for event in own:
                events.put_nowait(event)
        await events.join()


async def _nothing_waits() -> None:
    return None


async def _events(
    state: OpsState,
    site: str,
    instruction: Instruction,
    taken: Callable[[], Awaitable[None]] = _nothing_waits,
) -> Events:
    """Carry out one instruction; its outcome is settled once its events so far are `taken`."""
    request, effects, last = state.request, state.effects, WorkerUpdate()
    if not instruction.risky:
        yield rules.step(state.iteration, instruction)
    if not instruction.refused:
        call = rules.worker_call(request, instruction, by=state.by)
        try:
            async for update in effects.workers.run(site, call):
                if update.progress:
                    yield OpsProgress(instruction.worker, update.progress)
                last = update
        except EffectFailed as failure:
            code = failure.fault.code
            last = WorkerUpdate(result=rules.failed_result(request, instruction, code))
    await taken()
    if instruction.refused:
        outcome = await rules.refuse(request, effects, instruction)
    else:
        outcome = await rules.conclude(request, effects, instruction, last, by=state.by)
    state.outcomes.append(outcome)
    yield rules.result_event(outcome)


async def _deploy(state: OpsState) -> Events:
    """Carry out a deployment, stage by stage."""
    (instruction,) = state.batch.now
    stage: str | None = STAGES[0]
    release = ""
    while stage is not None:
        with state.effects.trace.node(stage):
            carried_out = _events(state, "deploy", rules.stage_of(instruction, stage, release))
            async with aclosing(carried_out) as events:
                async for event in events:
                    yield event
            result = state.outcomes[-1].result
            release = release or rules.planned_release(result)
            stage = rules.next_stage(stage, result)
