"""Flow `ops`, as a graph: a loop over the steps of a turn, a subgraph that deploys.

Independent instructions are sent to `execute` side by side; each sends its events once those
before it have ended. The node that has the last word ends the stream; so does an effect that fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from operator import add
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypedDict

import msgspec
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, Send

from contract.errors import EffectFailed
from contract.flow import Event, Flow
from contract.flows.ops import MOST_ITERATIONS, OpsDone, OpsFinal, OpsProgress, failed
from contract.human import HumanAnswer
from contract.ports import Effects
from contract.stores import Turn
from contract.workers import WorkerUpdate
from graph_impl.engine import Graph, Node, RunContext, add_nodes, ask_human, end_on_failure, run
from graph_impl.rounds import Plain, messages_of, plain, plains
from graph_impl.templates import FOLDER, read_prompts
from rules.ops import flow as rules
from rules.ops.instructions import (
    MOST_INSTRUCTIONS,
    ROLLBACK,
    STAGES,
    Instruction,
    InstructionOutcome,
    Portion,
    StepDecision,
)
from rules.ops.intents import Understood, understand
from rules.prompts import Render

log = logging.getLogger(__name__)


class OpsState(TypedDict, total=False):
    """What flows between the nodes; `outcomes` are those of all steps, of this one from `begun` on.

    `left` are the instructions of the step that are still to be checked, `batch` those that were;
    `rejected` is the instruction that ended the turn, `code` why it broke off.
    """

    understood: Plain
    messages: Annotated[list[Plain], add]
    iteration: int
    decision: Plain
    left: list[Plain]
    batch: Plain
    outcomes: Annotated[list[Plain], add]
    begun: int
    rejected: Plain
    code: str


class Work(TypedDict, total=False):
    """What `execute` and `deploy` are sent: an instruction, and whose outcomes it waits for.

    It is the `number`-th of the turn; `by` approved it. An empty step has no instruction.
    """

    instruction: Plain
    iteration: int
    number: int
    follows: bool
    by: str


class Done(TypedDict, total=False):
    """What comes of it; `code` where an effect failed."""

    outcomes: Annotated[list[Plain], add]
    code: str


class DeployState(Work, Done, total=False):
    """A deployment: its outcomes so far, the release that was planned, the stage that follows."""

    release: str
    stage: str


class EventOrder:
    """The order in which instructions that run side by side send their events."""

    def __init__(self) -> None:
        self._ended = defaultdict[int, asyncio.Event](asyncio.Event)
        self._whole = True

    @asynccontextmanager
    async def turn(self, work: Work) -> AsyncIterator[bool]:
        """Wait for the instruction before; yields False where one before has failed."""
        if work["follows"]:
            await self._ended[work["number"] - 1].wait()
        try:
            yield self._whole
        except BaseException:
            self._whole = False
            raise
        finally:
            self._ended[work["number"]].set()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsContext(RunContext):
    """What one run reaches the world and the client through, and the turn it was admitted with."""

    human_node: ClassVar[str] = "approve"

    request: rules.OpsTurn
    system: Render
    turn: Turn
    earlier: tuple[Turn, ...]
    order: EventOrder = field(default_factory=EventOrder)

    async def ask(self, question: Any) -> Any:
        """Open the question whether to carry out an instruction, show it and wait for its answer.

        None where no approval can be asked for.
        """
        instruction = msgspec.convert(question["instruction"], Instruction)
        opening = rules.approval(self.request, question["iteration"], instruction)
        try:
            approval_id = await self.effects.human.open("approve", opening)
        except EffectFailed as failure:
            log.warning("no approval can be asked for: %s", failure.fault.code)
            return None
        await self.sink.send(
            rules.step(question["iteration"], instruction),
            rules.approval_required(approval_id, instruction),
        )
        return plain(await self.effects.human.answer("approve", approval_id))

    async def finish(self, state: OpsState, reply: str) -> None:
        """Store the reply and release the session."""
        outcomes = _outcomes(state["outcomes"])
        await rules.finish(
            self.request, self.effects, self.turn, reply, state["iteration"], outcomes
        )


Ops = Runtime[OpsContext]


def _outcomes(found: list[Plain]) -> tuple[InstructionOutcome, ...]:
    return msgspec.convert(found, tuple[InstructionOutcome, ...])


async def _preprocess(_: OpsState, runtime: Ops) -> OpsState:
    """Resolve references, read what the message asks for, lay out the conversation."""
    context = runtime.context
    understood = understand(context.turn.content, context.earlier)
    messages = rules.lay_out(
        context.request, context.earlier, context.turn, understood.text, context.system
    )
    return {"understood": plain(understood), "messages": plains(messages)}


async def _reason(state: OpsState, runtime: Ops) -> OpsState:
    """Decide on the next step; one that is not at its end goes on."""
    if state["left"]:
        return {}
    context, iteration = runtime.context, state["iteration"] + 1
    decision = await rules.decide(
        context.request,
        context.effects,
        messages_of(state["messages"]),
        msgspec.convert(state["understood"], Understood),
        iteration,
    )
    return {
        "iteration": iteration,
        "decision": plain(decision),
        "left": plains(decision.instructions),
        "batch": plain(Portion()),
        "begun": len(state["outcomes"]),
    }


async def _safety(state: OpsState, runtime: Ops) -> Command[Literal["approve", "execute"]]:
    """Assess the instructions, and send on those to carry out now."""
    context = runtime.context
    batch = await rules.check_safety(
        context.request,
        context.effects,
        msgspec.convert(state["left"], tuple[Instruction, ...]),
        serial=state["batch"]["serial"],
    )
    update: OpsState = {"batch": plain(batch)}
    if batch.asks:
        return Command(update=update, goto="approve")
    first = len(state["outcomes"])
    work = [
        Work(
            instruction=plain(instruction),
            iteration=state["iteration"],
            number=number,
            follows=number > first,
            by="",
        )
        for number, instruction in enumerate(batch.now, first)
    ]
    return Command(update=update, goto=[Send("execute", one) for one in work or [Work()]])


async def _approve(state: OpsState, runtime: Ops) -> Command[Literal["execute", "deploy", "error"]]:
    """Ask for an approval; refuse what cannot be approved."""
    context, (asked,) = runtime.context, state["batch"]["now"]
    found = None
    if rules.asks(context.request):
        found = ask_human({"instruction": asked, "iteration": state["iteration"]})
    answer = msgspec.convert(found, HumanAnswer | None)
    instruction = msgspec.convert(asked, Instruction)
    if answer is None:
        instruction = rules.unapproved(instruction)
    elif not await rules.accept(
        context.request, context.effects, state["iteration"], instruction, answer
    ):
        return Command(update={"rejected": asked}, goto="error")
    work = Work(
        instruction=plain(instruction),
        iteration=state["iteration"],
        number=len(state["outcomes"]),
        follows=False,
        by=(answer.by or "") if answer else "",
    )
    return Command(goto=Send("deploy" if instruction.deploys else "execute", work))


async def _execute(state: Work, runtime: Ops) -> Done:
    """Carry out one instruction; an empty step has none."""
    if "instruction" not in state:
        return {}
    instruction = msgspec.convert(state["instruction"], Instruction)
    try:
        return {"outcomes": plains(await _carry_out(state, runtime, "execute", instruction))}
    except EffectFailed as failure:
        return {"code": failure.fault.code}


async def _check(state: OpsState, runtime: Ops) -> Command[Literal["reason", "error", "__end__"]]:
    """Decide what follows the step; store and send the reply that ends the turn."""
    context = runtime.context
    checked = rules.check(
        context.request,
        state["iteration"],
        msgspec.convert(state["decision"], StepDecision),
        msgspec.convert(state["batch"], Portion).left,
        _outcomes(state["outcomes"][state["begun"] :]),
        failed=state.get("code", ""),
    )
    if checked.next == "error":
        return Command(update={"code": checked.code}, goto="error")
    if checked.next == "reason":
        update: OpsState = {"left": plains(checked.left), "messages": plains(checked.observed)}
        return Command(update=update, goto="reason")
    await context.finish(state, checked.final)
    await context.sink.send(OpsFinal(checked.final), OpsDone("completed"))
    return Command(goto="__end__")


async def _error(state: OpsState, runtime: Ops) -> OpsState:
    """End a turn that was rejected, or that broke off."""
    context = runtime.context
    if "code" in state:
        await context.sink.send(*failed(state["code"]))
        return {}
    rejected = msgspec.convert(state["rejected"], Instruction)
    await context.finish(state, rules.rejection(context.request, rejected))
    await context.sink.send(OpsDone("rejected"))
    return {}


# Carrying out


async def _carry_out(
    work: Work, runtime: Ops, site: str, instruction: Instruction
) -> tuple[InstructionOutcome, ...]:
    """Carry out an instruction or a stage; send its events once those before it have ended.

    Nothing is returned, and nothing sent, where one before it has failed.
    """
    context, request, sink = runtime.context, runtime.context.request, runtime.context.sink
    async with (
        _started(context, site, instruction, work["by"]) as (updates, worker),
        context.order.turn(work) as whole,
    ):
        if not whole:
            return ()
        await asyncio.sleep(0)  # those beside it have begun before the reader has an event
        if not instruction.risky:
            await sink.send(rules.step(work["iteration"], instruction))
        last = WorkerUpdate()
        while (update := await updates.get()) is not None:
            if update.progress:
                await sink.push(OpsProgress(instruction.worker, update.progress))
            last = update
        await worker
        await sink.drained()
        if instruction.refused:
            outcome = await rules.refuse(request, context.effects, instruction)
        else:
            by = work["by"]
            outcome = await rules.conclude(request, context.effects, instruction, last, by=by)
        await sink.send(rules.result_event(outcome))
    return (outcome,)


@asynccontextmanager
async def _started(
    context: OpsContext, site: str, instruction: Instruction, by: str
) -> AsyncIterator[tuple[asyncio.Queue[WorkerUpdate | None], asyncio.Task[None]]]:
    """Start the worker of an instruction; yields the queue of its updates, ended by None."""
    updates: asyncio.Queue[WorkerUpdate | None] = asyncio.Queue()

    async def read() -> None:
        if instruction.refused:
            return
        call = rules.worker_call(context.request, instruction, by=by)
        try:
            async for update in context.effects.workers.run(site, call):
                updates.put_nowait(update)
        except EffectFailed as failure:
            code = failure.fault.code
            result = rules.failed_result(context.request, instruction, code)
            updates.put_nowait(WorkerUpdate(result=result))

    task = asyncio.create_task(read())
    task.add_done_callback(lambda _: updates.put_nowait(None))
    try:
        yield updates, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# Deploying


def _stage(stage: str) -> Node:
    """Return the node of one stage."""

    async def node(state: DeployState, runtime: Ops) -> DeployState:
        planned = state.get("release", "")
        whole = msgspec.convert(state["instruction"], Instruction)
        try:
            (outcome,) = await _carry_out(
                state, runtime, "deploy", rules.stage_of(whole, stage, planned)
            )
        except EffectFailed as failure:
            return {"code": failure.fault.code, "stage": END}
        return {
            "outcomes": [plain(outcome)],
            "release": planned or rules.planned_release(outcome.result),
            "stage": rules.next_stage(stage, outcome.result) or END,
        }

    return node


def _following(state: DeployState) -> str:
    return state["stage"]


def build_deployment() -> Graph:
    """Compile the graph of a deployment."""
    graph = StateGraph(
        DeployState, context_schema=OpsContext, input_schema=Work, output_schema=Done
    )
    add_nodes(graph, **{stage: _stage(stage) for stage in (*STAGES, ROLLBACK)})
    graph.add_edge(START, STAGES[0])
    for stage, then in zip(STAGES, (*STAGES[1:], ROLLBACK), strict=True):
        graph.add_conditional_edges(stage, _following, [then, END])
    graph.add_edge(ROLLBACK, END)
    return graph.compile(name="ops deployment", checkpointer=False)


# Graph and flow


def build() -> Graph:
    """Compile the graph."""
    graph = StateGraph(OpsState, context_schema=OpsContext)
    end_on_failure(graph, failed)
    add_nodes(
        graph,
        preprocess=_preprocess,
        reason=_reason,
        safety=_safety,
        approve=_approve,
        execute=_execute,
        check=_check,
        error=_error,
    )
    graph.add_node("deploy", build_deployment())
    graph.add_edge(START, "preprocess")
    graph.add_edge("preprocess", "reason")
    graph.add_edge("reason", "safety")
    graph.add_edge("execute", "check")
    graph.add_edge("deploy", "check")
    graph.add_edge("error", END)
    return graph.compile(name="ops")


def ops(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    graph, system = build(), read_prompts("ops", prompts, rules.PROMPTS)["system"]

    async def flow(request: rules.OpsTurn, effects: Effects) -> AsyncIterator[Event]:
        with effects.trace.node("admission"):
            turn, earlier = await rules.admit(request, effects)
        context = OpsContext(
            effects=effects, request=request, system=system, turn=turn, earlier=earlier
        )
        state: OpsState = {"iteration": 0, "left": [], "outcomes": [], "messages": []}
        # five supersteps for each instruction, one by one, to the first refused one; some to spare
        steps = 5 * (MOST_INSTRUCTIONS + 1) * MOST_ITERATIONS + 10
        async with aclosing(run(graph, state, context, steps=steps)) as events:
            async for event in events:
                yield event

    return flow
