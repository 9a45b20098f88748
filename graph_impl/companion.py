"""Flow `companion`: admission; then the graph of messages, or that of pictures.

A message is felt, and memories of it recalled, side by side; then the graph: model ⇄ tools, with a
question to the user in between. What comes before the first question and after the last answer is
no node of its own: a superstep of the engine costs more than all of it.

Nodes raise what goes wrong, and so that the flow pauses: the engine hands both on as they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from contract.errors import EffectFailed
from contract.flow import Event, Flow
from contract.flows.companion import Emotion, ImageTurn, failed
from contract.model import ModelCall, ToolResult
from contract.ports import Effects
from graph_impl import pictures
from graph_impl.ahead import asked_ahead
from graph_impl.engine import Course, Sink, run
from graph_impl.rounds import Plain, beside, calls_of, plain_tool, question, started
from graph_impl.templates import FOLDER
from graph_impl.visit import Prompts, VisitContext, VisitState, admit
from rules import companion as rules
from rules import questions
from rules.answers import ModelAnswer
from rules.conversation import window
from rules.emotion import feel
from rules.images import picture
from rules.model_calls import prompt_messages, tool_answer, tool_round

log = logging.getLogger(__name__)

Visit = Runtime[VisitContext]
# Commands, not conditional edges: for an edge the engine puts the whole state together once more,
# and one that is no coroutine waits for a thread.
ToTools = Command[Literal["tools", "__end__"]]


async def _recall(context: VisitContext) -> str:
    """Recall; a memory that fails is a memory of nothing."""
    wanted = rules.recall(context.asked)
    if wanted is None:
        return rules.told(())
    try:
        with context.effects.trace.node("recall"):
            return rules.told(await context.effects.memory.recall("recall", wanted))
    except EffectFailed as failure:
        log.warning("nothing is recalled: %s", failure.fault.code)
        return rules.told(())


async def _lay_out(context: VisitContext, mood: Emotion, memories: str) -> VisitState:
    """Lay out the conversation as the graph starts from it; raises `EffectFailed`."""
    effects, asked, admitted = context.effects, context.asked, context.admitted
    now = await effects.clock.now("prompt")
    given = rules.prompt(now, asked, mood, memories, admitted.earlier)
    history = window(admitted.earlier, asked.options.history_tokens)
    messages = prompt_messages(context.prompts.system(given), history, admitted.turn)
    offered = await effects.tools.list("offer") if asked.options.enable_tools else ()
    tools = questions.offer(offered, asking=asked.options.ask_human)
    return {
        "messages": msgspec.to_builtins(messages),
        "tools": [plain_tool(one) for one in tools],
        "text": "",
    }


async def _reasoning(state: VisitState, runtime: Visit) -> ToTools:
    """Ask the model once; an answer that calls no tool is kept."""
    context = runtime.context
    options = context.asked.options
    rounds = options.max_tool_iterations
    call = question(options, state["messages"], state["tools"], rounds=rounds)
    with context.effects.trace.node("reasoning"):
        answer = await _read(context, call)
    calls, so_far = answer.calls(call), state["text"] + answer.text
    if not calls:
        await context.keep(so_far)
        return Command(goto="__end__")
    said = msgspec.to_builtins(tool_round(answer.text, calls))
    update: VisitState = {"messages": [*state["messages"], said], "text": so_far}
    return Command(update=update, goto="tools")


async def _read(context: VisitContext, call: ModelCall) -> ModelAnswer:
    """Read an answer to its end, sending its text on the way."""
    answer = ModelAnswer()
    async for chunk in context.effects.model.stream("reasoning", call):
        if text := answer.add(chunk):
            await context.say(text)
    await context.sink.taken()
    return answer


async def _tools(state: VisitState, runtime: Visit) -> Command[Literal["ask", "reasoning"]]:
    """Run the round's calls side by side; show them in index order."""
    context = runtime.context
    todo = _round(state, context)
    results = dict(todo.refused)
    with context.effects.trace.node("tools"):
        async with started(context.effects, todo.runs) as running:
            tasks = {one.id: task for one, task in zip(todo.runs, running, strict=True)}
            for call in todo.before:
                if call.id in tasks:
                    results[call.id] = await tasks[call.id]
                await context.sink.send(rules.shown(call, results[call.id]))
    if todo.question is not None:
        return Command(update={"results": msgspec.to_builtins(results)}, goto="ask")
    return Command(update=_told(state, todo, results), goto="reasoning")


async def _ask(state: VisitState, runtime: Visit) -> VisitState:
    """Ask the user what the round's question says, once its other calls are over."""
    context = runtime.context
    todo = _round(state, context)
    results = msgspec.convert(state["results"], dict[str, ToolResult])
    if todo.question is not None:
        call = todo.question.call
        with context.effects.trace.node("ask"):
            results[call.id] = await _answer(context, todo.question)
        await context.sink.send(rules.shown(call, results[call.id]))
    return _told(state, todo, results)


async def _answer(context: VisitContext, question: questions.FormCall) -> ToolResult:
    try:
        hitl_id = await context.put(question.form, rules.QUESTION)
    except EffectFailed as failure:
        log.warning("the user is not asked: %s", failure.fault.code)
        return questions.NOT_ASKED
    answer = await context.answer(hitl_id, question.form, rules.QUESTION)
    return questions.answered(question.form, answer)


def _round(state: VisitState, context: VisitContext) -> questions.Round:
    calls = calls_of(state["messages"][-1])
    return questions.sort_out(calls, asking=context.asked.options.ask_human)


def _told(state: VisitState, todo: questions.Round, results: dict[str, ToolResult]) -> VisitState:
    answers: list[Plain] = [
        msgspec.to_builtins(tool_answer(call, results[call.id])) for call in todo.calls
    ]
    return {"messages": [*state["messages"], *answers], "results": {}}


def build() -> CompiledStateGraph[Any, VisitContext, Any, Any]:
    """Compile the graph of messages."""
    graph = StateGraph(VisitState, context_schema=VisitContext)
    graph.add_node("reasoning", _reasoning)
    graph.add_node("tools", _tools)
    graph.add_node("ask", _ask)
    graph.add_edge(START, "reasoning")
    graph.add_edge("ask", "reasoning")
    return graph.compile(name="companion")


def companion(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    messages, shown, rendered = build(), pictures.build(), Prompts.of(prompts)

    async def flow(asked: rules.Asked, effects: Effects) -> AsyncIterator[Event]:
        with effects.trace.node("prepare"):
            seen = picture(asked.body.image) if isinstance(asked.body, ImageTurn) else None
            admitted = await admit(asked, effects)
        context = VisitContext(asked, admitted, effects, rendered, Sink())
        try:
            rounds = asked.options.max_tool_iterations
            if seen is None:
                async with beside(_recall(context)) as (recalling,):
                    await asyncio.sleep(0)  # what is to be recalled is asked for before
                    with effects.trace.node("emotion"):
                        mood = feel(asked.body.message)
                    yield mood
                    state = await _lay_out(context, mood, await recalling)
                call = question(asked.options, state["messages"], state["tools"], rounds=rounds)
                graph, site = messages, "reasoning"
            else:
                state = {"picture": msgspec.to_builtins(seen)}
                call = pictures.question(context, seen)
                graph, site = shown, "vision"
            # three a round of tools with a question in it, and some to spare
            course = Course(3 * rounds + 10)
            async with (
                asked_ahead(effects, site, call) as ahead,
                aclosing(
                    run(graph, state, replace(context, effects=ahead), context.sink, course)
                ) as events,
            ):
                async for event in events:
                    yield event
        except EffectFailed as failure:
            for event in failed(failure.fault.code):
                yield event

    return flow
