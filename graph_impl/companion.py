"""Flow `companion`: admission; then the graph.

A message is felt, and memories of it recalled, side by side; then model ⇄ tools, with a question to
the user in between. A picture is read, searched for what may be remembered, and that confirmed.

Nodes raise what goes wrong, and so that the flow pauses: the engine hands both on as they are.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal

import msgspec
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from contract.companion import Done, Emotion, ImageTurn, failed
from contract.errors import EffectFailed
from contract.flow import Event, Flow
from contract.model import AssistantMessage, Message, ModelCall
from contract.ports import Effects
from contract.session import lock_key
from contract.tools import ToolCall, ToolResult
from graph_impl import pictures
from graph_impl.plain import Plain, plain_tool, tool
from graph_impl.prompting import FOLDER
from graph_impl.run import Course, Sink, run
from graph_impl.tool_runs import started
from graph_impl.visit import Prompts, VisitContext, VisitState, admit
from rules import asking
from rules import companion as rules
from rules.chat import reply
from rules.emotion import feel
from rules.history import window
from rules.images import picture
from rules.messages import conversation, tool_answer, tool_round
from rules.tool_calls import EARLY_ENDINGS, ToolCallAssembly

log = logging.getLogger(__name__)

Visit = Runtime[VisitContext]
Entry = Literal["emotion", "recall", "vision"]
ToTools = Command[Literal["tools", "keep"]]


def _enter(state: VisitState) -> list[Entry]:
    """Begin with the picture, or with the message."""
    return ["vision"] if "picture" in state else ["emotion", "recall"]


async def _emotion(
    state: VisitState,  # noqa: ARG001 - the engine passes it by this name
    runtime: Visit,
) -> VisitState:
    """Read the mood of the message, and send it."""
    context = runtime.context
    with context.effects.trace.node("emotion"):
        mood = feel(context.asked.body.message)
    await context.sink.send(mood)
    return {"mood": msgspec.to_builtins(mood)}


async def _recall(
    state: VisitState,  # noqa: ARG001 - as above
    runtime: Visit,
) -> VisitState:
    """Recall; a memory that fails is a memory of nothing."""
    context = runtime.context
    wanted = rules.recall(context.asked)
    if wanted is None:
        return {"memories": rules.told(())}
    try:
        with context.effects.trace.node("recall"):
            found = await context.effects.memory.recall("recall", wanted)
    except EffectFailed as failure:
        log.warning("nothing is recalled: %s", failure.fault.code)
        return {"memories": rules.told(())}
    return {"memories": rules.told(found)}


async def _layout(state: VisitState, runtime: Visit) -> VisitState:
    """Lay out the conversation and the tools."""
    context = runtime.context
    effects, asked, admitted = context.effects, context.asked, context.admitted
    mood = msgspec.convert(state["mood"], Emotion)
    now = await effects.clock.now("prompt")
    given = rules.prompt(now, asked, mood, state["memories"], admitted.earlier)
    history = window(admitted.earlier, asked.options.history_tokens)
    messages = conversation(context.prompts.system(given), history, admitted.turn)
    offered = await effects.tools.list("offer") if asked.options.enable_tools else ()
    tools = asking.offer(offered, asking=asked.options.ask_human)
    return {
        "messages": msgspec.to_builtins(messages),
        "tools": [plain_tool(one) for one in tools],
        "text": "",
    }


class _Laid(msgspec.Struct):
    """The messages of a state, typed."""

    messages: tuple[Message, ...]

    @property
    def rounds(self) -> list[tuple[ToolCall, ...]]:
        """The calls of each round of tools so far."""
        said = (one for one in self.messages if isinstance(one, AssistantMessage))
        return [one.tool_calls for one in said if one.tool_calls]


async def _reasoning(state: VisitState, runtime: Visit) -> ToTools:
    """Ask the model once."""
    context, laid = runtime.context, msgspec.convert(state, _Laid)
    options, rounds = context.asked.options, laid.rounds
    last = len(rounds) >= options.max_tool_iterations
    tools = tuple(map(tool, state["tools"]))
    call = rules.question(options, laid.messages, tools, last=last)
    with context.effects.trace.node("reasoning"):
        text, assembly = await _read(context, call)
    update: VisitState = {"text": state["text"] + text}
    calls = assembly.calls(len(rounds), {it.id for one in rounds for it in one}) if assembly else ()
    if not calls:
        return Command(update=update, goto="keep")
    said = tool_round(text, calls)
    update["messages"] = [*state["messages"], msgspec.to_builtins(said)]
    return Command(update=update, goto="tools")


async def _read(context: VisitContext, call: ModelCall) -> tuple[str, ToolCallAssembly | None]:
    """Read an answer to its end, sending its text; the calls are None where none may be made."""
    text, finish, assembly = "", "", ToolCallAssembly()
    async for chunk in context.effects.model.stream("reasoning", call):
        finish = chunk.finish or finish
        assembly.add(chunk.tool_calls)
        if chunk.text:
            text += await context.say(chunk.text)
    calls = call.tool_choice == "auto" and finish not in EARLY_ENDINGS
    return text, assembly if calls else None


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


async def _answer(context: VisitContext, question: asking.Question) -> ToolResult:
    try:
        hitl_id = await context.put(question.form, rules.QUESTION)
    except EffectFailed as failure:
        log.warning("the user is not asked: %s", failure.fault.code)
        return asking.NOT_ASKED
    answer = await context.answer(hitl_id, question.form, rules.QUESTION)
    return asking.answered(question.form, answer)


def _round(state: VisitState, context: VisitContext) -> asking.Round:
    calls = msgspec.convert(state["messages"][-1], AssistantMessage).tool_calls
    return asking.sort_out(calls, asking=context.asked.options.ask_human)


def _told(state: VisitState, todo: asking.Round, results: dict[str, ToolResult]) -> VisitState:
    answers: list[Plain] = [
        msgspec.to_builtins(tool_answer(call, results[call.id])) for call in todo.calls
    ]
    return {"messages": [*state["messages"], *answers], "results": {}}


async def _keep(state: VisitState, runtime: Visit) -> VisitState:
    """Store the whole answer, say that the session is free again, and end the stream."""
    context = runtime.context
    effects, turn = context.effects, context.admitted.turn
    answer = reply(await effects.ids.new("reply"), turn, state["text"])
    await effects.conversations.put("reply", answer)
    await effects.locks.release("session", lock_key(context.asked.body.session_id))
    await context.sink.send(Done("completed"))
    return {}


def build() -> CompiledStateGraph[Any, VisitContext, Any, Any]:
    """Compile the graph."""
    graph = StateGraph(VisitState, context_schema=VisitContext)
    graph.add_node("emotion", _emotion)
    graph.add_node("recall", _recall)
    graph.add_node("layout", _layout)
    graph.add_node("reasoning", _reasoning)
    graph.add_node("tools", _tools)
    graph.add_node("ask", _ask)
    graph.add_node("vision", pictures.vision)
    graph.add_node("extraction", pictures.extraction)
    graph.add_node("confirm", pictures.confirm)
    graph.add_node("keep", _keep)
    graph.add_conditional_edges(START, _enter, ["emotion", "recall", "vision"])
    graph.add_edge(["emotion", "recall"], "layout")
    graph.add_edge("layout", "reasoning")
    graph.add_edge("ask", "reasoning")
    graph.add_edge("confirm", "keep")
    graph.add_edge("keep", END)
    return graph.compile(name="companion")


def companion(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    graph, rendered = build(), Prompts.of(prompts)

    async def flow(asked: rules.Asked, effects: Effects) -> AsyncIterator[Event]:
        with effects.trace.node("prepare"):
            seen = picture(asked.body.image) if isinstance(asked.body, ImageTurn) else None
            admitted = await admit(asked, effects)
        context = VisitContext(asked, admitted, effects, rendered, Sink())
        state: VisitState = {} if seen is None else {"picture": msgspec.to_builtins(seen)}
        # three a round of tools with a question in it, and what comes before and after
        course = Course(3 * asked.options.max_tool_iterations + 10)
        try:
            async with aclosing(run(graph, state, context, context.sink, course)) as events:
                async for event in events:
                    yield event
        except EffectFailed as failure:
            for event in failed(failure.fault.code):
                yield event

    return flow
