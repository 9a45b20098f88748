"""Flow `pipeline`, as a graph: a node for each step; `rag_retriever` runs only where it is needed.

A node whose effect fails records that in `errors`; the run continues with the next node.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from operator import add
from pathlib import Path
from typing import Annotated, Literal, TypedDict

import msgspec
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from contract.errors import EffectFailed
from contract.flow import Event, Flow
from contract.flows.pipeline import NodeFailure, PipelineToken
from contract.ports import Effects
from contract.stores import MemoryEntry, Turn
from graph_impl.engine import Graph, RunContext, add_nodes, run
from graph_impl.rounds import Plain, messages_of, plain, plains
from graph_impl.templates import FOLDER, read_prompts
from rules import pipeline as rules
from rules.conversation import ModelAnswer, question
from rules.prompts import Render

log = logging.getLogger(__name__)


class PipelineState(TypedDict, total=False):
    """What flows between the nodes: plain values only.

    `monitored` is what `token_monitor` found; without a whole answer there is no `response`.
    """

    turn: Plain
    end_intent: bool
    monitored: Plain
    memories: list[Plain]
    messages: list[Plain]
    response: str | None
    notice: str
    errors: Annotated[list[Plain], add]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineContext(RunContext):
    """What one run reaches the world and the client through, and the prompts by name."""

    request: rules.PipelineTurn
    prompts: Mapping[str, Render]


Pipeline = Runtime[PipelineContext]
Checked = Command[Literal["rag_retriever", "context_builder"]]


def _failed(node: str, failure: EffectFailed) -> PipelineState:
    """Record a node's failure."""
    return {"errors": [plain(NodeFailure(node, failure.fault.code))]}


def _turn(state: PipelineState) -> Turn:
    return msgspec.convert(state["turn"], Turn)


def _monitored(state: PipelineState) -> rules.Monitored:
    return msgspec.convert(state["monitored"], rules.Monitored)


async def _input_processor(state: PipelineState, runtime: Pipeline) -> PipelineState:  # noqa: ARG001 - the engine passes it by this name
    """Trim the message; find out whether the user wishes to end."""
    turn = rules.trim(_turn(state))
    return {"turn": plain(turn), "end_intent": rules.wishes_to_end(turn.content)}


async def _token_monitor(state: PipelineState, runtime: Pipeline) -> PipelineState:
    """Count the tokens of history and message, and decide what follows from them."""
    context = runtime.context
    found = await rules.monitor(context.request, context.effects, _turn(state))
    return {"monitored": plain(found), "errors": plains(found.failures)}


async def _memory_check(state: PipelineState, runtime: Pipeline) -> Checked:
    """Ask the model whether the reply needs memories."""
    context = runtime.context
    try:
        involved = await rules.involves_memory(
            context.request, context.effects, _turn(state), context.prompts["memory_check"]
        )
    except EffectFailed as failure:
        return Command(update=_failed("memory_check", failure), goto="context_builder")
    return Command(goto="rag_retriever" if involved else "context_builder")


async def _rag_retriever(state: PipelineState, runtime: Pipeline) -> PipelineState:
    """Retrieve memories of the user and the relation."""
    context = runtime.context
    try:
        query = rules.recall(context.request, _turn(state))
        return {"memories": plains(await context.effects.memory.recall("recall", query))}
    except EffectFailed as failure:
        return _failed("rag_retriever", failure)


async def _context_builder(state: PipelineState, runtime: Pipeline) -> PipelineState:
    """Lay out system prompt, memories, history and message."""
    context = runtime.context
    memories = [msgspec.convert(one, MemoryEntry) for one in state["memories"]]
    messages = rules.lay_out(
        context.request, memories, _monitored(state).shown, _turn(state), context.prompts["system"]
    )
    return {"messages": plains(messages)}


async def _response_generator(state: PipelineState, runtime: Pipeline) -> PipelineState:
    """Call the model, sending its text on the way."""
    context, answer = runtime.context, ModelAnswer()
    call = question(context.request.options, messages_of(state["messages"]), (), last=True)
    try:
        async for chunk in context.effects.model.stream("reply", call):
            if piece := answer.add(chunk):
                await context.sink.push(PipelineToken(piece))
        update: PipelineState = {"response": rules.response_of(answer.text)}
    except EffectFailed as failure:
        update = _failed("response_generator", failure)
    await context.sink.drained()
    return update


async def _token_response(state: PipelineState, runtime: Pipeline) -> PipelineState:
    """Append the notice or the closing line that the number of tokens calls for."""
    context = runtime.context
    notice = rules.notice(context.request, _monitored(state).info, state["response"])
    if notice:
        await context.sink.send(PipelineToken(notice))
    return {"notice": notice}


async def _output_formatter(state: PipelineState, runtime: Pipeline) -> PipelineState:
    """Store the turn and its response, and end the stream."""
    context = runtime.context
    errors = [msgspec.convert(one, NodeFailure) for one in state["errors"]]
    try:
        await rules.store(context.request, context.effects, _turn(state), state["response"])
    except EffectFailed as failure:
        errors.append(NodeFailure("output_formatter", failure.fault.code))
    for error in errors:
        log.warning("node %s failed: %s", error.node, error.code)
    ending = rules.ending(
        state["response"],
        state["notice"],
        _monitored(state).info,
        (one["memory_id"] for one in state["memories"]),
        errors,
        end_intent=state["end_intent"],
    )
    await context.sink.send(ending)
    return {}


def build() -> Graph:
    """Compile the graph."""
    graph = StateGraph(PipelineState, context_schema=PipelineContext)
    add_nodes(
        graph,
        input_processor=_input_processor,
        token_monitor=_token_monitor,
        memory_check=_memory_check,
        rag_retriever=_rag_retriever,
        context_builder=_context_builder,
        response_generator=_response_generator,
        token_response=_token_response,
        output_formatter=_output_formatter,
    )
    graph.add_edge(START, "input_processor")
    graph.add_edge("input_processor", "token_monitor")
    graph.add_edge("token_monitor", "memory_check")
    graph.add_edge("rag_retriever", "context_builder")
    graph.add_edge("context_builder", "response_generator")
    graph.add_edge("response_generator", "token_response")
    graph.add_edge("token_response", "output_formatter")
    graph.add_edge("output_formatter", END)
    return graph.compile(name="pipeline")


def pipeline(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    graph, rendered = build(), read_prompts("pipeline", prompts, rules.PROMPTS)

    async def flow(request: rules.PipelineTurn, effects: Effects) -> AsyncIterator[Event]:
        with effects.trace.node("admission"):
            turn = await rules.admit(request, effects)
        context = PipelineContext(effects=effects, request=request, prompts=rendered)
        # what a node that fails leaves out of the state
        state = {"turn": plain(turn), "memories": [], "response": None, "errors": []}
        # eight nodes; some to spare
        async with aclosing(run(graph, state, context, steps=12)) as events:
            async for event in events:
                yield event

    return flow
