"""Flow `chat`: admission, the opening frames, the conversation; then the graph: model ⇄ tools.

Each node may end the reply. What comes before the first question and after the last answer is no
node of its own: a superstep of the engine costs more than all of it. The engine takes longer to
start than all that comes before the opening frames: it is started once they are out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from contract.errors import EffectFailed
from contract.flow import Event, Flow, Request
from contract.flows.chat import (
    Accept,
    ChatOptions,
    ChatRequest,
    End,
    Failed,
    StartReply,
    Success,
    ToolFeedback,
    failed,
)
from contract.model import ModelCall, ToolCall, ToolResult
from contract.ports import Effects
from graph_impl import draft as drafts
from graph_impl.admission import admit, earlier
from graph_impl.ahead import asked_ahead
from graph_impl.draft import Draft
from graph_impl.engine import Course, Sink, run
from graph_impl.rounds import calls_of, plain_tool, question, started
from graph_impl.state import ChatContext, ChatState, draft_of
from graph_impl.templates import FOLDER, Render, system_prompt
from rules import chat as rules
from rules.answers import ModelAnswer
from rules.conversation import reply_turn
from rules.model_calls import prompt_messages, tool_answer, tool_round
from rules.prompts import ending_notice, parameters

Chat = Runtime[ChatContext]
# Commands, not conditional edges: for an edge the engine puts the whole state together once more.
ToModel = Command[Literal["model", "__end__"]]
ToTools = Command[Literal["tools", "__end__"]]


async def _lay_out(context: ChatContext, render: Render) -> ChatState:
    """Lay out the conversation as the graph starts from it; raises `EffectFailed`."""
    effects, request, turn = context.effects, context.request, context.turn
    now = await effects.clock.now("prompt")
    system = render(parameters(now, request.options.timezone, request.body.prompt_params))
    messages = prompt_messages(system, await earlier(turn, request.options, effects), turn)
    tools = await effects.tools.list("offer") if context.model.enable_tools else ()
    return {
        "messages": msgspec.to_builtins(messages),
        "tools": [plain_tool(tool) for tool in tools],
        "draft": {},
    }


@dataclass(slots=True)
class _Round:
    """What one answer of the model brings, and the draft it makes; lives inside one node."""

    draft: Draft
    answer: ModelAnswer

    async def read(self, context: ChatContext, call: ModelCall) -> None:
        """Read the answer to its end, sending on the way; raises `EffectFailed`."""
        options = context.request.options
        async for chunk in context.effects.model.stream("reply", call):
            self.answer.add(chunk)
            self.draft = await context.send(drafts.take(self.draft, chunk, options))


async def _model(state: ChatState, runtime: Chat) -> ToTools:
    """Ask the model once."""
    context = runtime.context
    model = context.model
    rounds = model.max_tool_iterations
    call = question(model, state["messages"], state["tools"], rounds=rounds)
    made = _Round(draft_of(state), ModelAnswer())
    try:
        with context.effects.trace.node("model"):
            await made.read(context, call)
    except EffectFailed as failure:
        return await _fail(context, made.draft, failure)
    calls = made.answer.calls(call)
    if not calls:
        return await _finish(context, made)
    said = tool_round(made.answer.text, calls)
    update: ChatState = {
        "messages": [*state["messages"], msgspec.to_builtins(said)],
        "draft": msgspec.to_builtins(made.draft),
    }
    return Command(update=update, goto="tools")


async def _tools(state: ChatState, runtime: Chat) -> ToModel:
    """Run the round's calls side by side; show and remember them in index order."""
    context = runtime.context
    calls = calls_of(state["messages"][-1])
    with context.effects.trace.node("tools"):
        return await _use(state, context, calls)


async def _use(state: ChatState, context: ChatContext, calls: tuple[ToolCall, ...]) -> ToModel:
    options, draft = context.request.options, draft_of(state)
    messages = list(state["messages"])
    for call in calls:
        news = ToolFeedback(call.name, "running")
        draft = await context.send(drafts.feedback(draft, news, options))
    try:
        async with started(context.effects, calls) as tasks:
            for call, task in zip(calls, tasks, strict=True):
                result = await task
                messages.append(msgspec.to_builtins(tool_answer(call, result)))
                draft = msgspec.structs.replace(draft, at=max(draft.at, result.at))
                draft = await context.send(drafts.feedback(draft, _news(call, result), options))
    except EffectFailed as failure:
        return await _fail(context, draft, failure)
    update: ChatState = {"messages": messages, "draft": msgspec.to_builtins(draft)}
    return Command(update=update, goto="model")


def _news(call: ToolCall, result: ToolResult) -> ToolFeedback:
    return ToolFeedback(call.name, "done" if result.ok else "error")


async def _finish(context: ChatContext, made: _Round) -> Command[Any]:
    """Send what is left, store the reply, and end the stream."""
    options = context.request.options
    notice = ending_notice(made.answer.finish, options.texts)
    whole = msgspec.structs.replace(made.draft, content=made.draft.content + notice)
    draft = await context.send(drafts.flush(whole, options))
    try:
        await _keep(context, draft.content)
    except EffectFailed as failure:
        return await _fail(context, draft, failure)
    return await _end(context, Success(draft.content))


async def _fail(context: ChatContext, draft: Draft, failure: EffectFailed) -> Command[Any]:
    """Send what is left, and say that the reply has failed."""
    options = context.request.options
    await context.send(drafts.flush(draft, options))
    return await _end(context, failed(options, failure.fault.code))


async def _end(context: ChatContext, ending: Success | Failed) -> Command[Any]:
    await context.sink.send(ending)
    await context.sink.send(End())
    return Command(goto=END)


async def _keep(context: ChatContext, content: str) -> None:
    """Store the finished reply and say that the lock is no longer needed."""
    effects, turn = context.effects, context.turn
    reply_id = await effects.ids.new("reply")
    await effects.conversations.put("reply", reply_turn(reply_id, turn, content))
    await effects.locks.release("message", rules.lock_key(turn.message_id))


def build() -> CompiledStateGraph[Any, ChatContext, Any, Any]:
    """Compile the graph."""
    graph = StateGraph(ChatState, context_schema=ChatContext)
    graph.add_node("model", _model)
    graph.add_node("tools", _tools)
    graph.add_edge(START, "model")
    return graph.compile(name="chat")


def chat(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    graph = build()
    render = system_prompt("chat_system.md", prompts)

    async def flow(
        request: Request[ChatRequest, ChatOptions], effects: Effects
    ) -> AsyncIterator[Event]:
        model = rules.settings(request.body, request.options)
        with effects.trace.node("prepare"):
            turn = await admit(request, model, effects)
        yield Accept()
        yield StartReply()
        context = ChatContext(request, model, turn, effects, Sink())
        try:
            with effects.trace.node("prepare"):
                state = await _lay_out(context, render)
        except EffectFailed as failure:
            yield failed(request.options, failure.fault.code)
            yield End()
            return
        rounds = model.max_tool_iterations
        call = question(model, state["messages"], state["tools"], rounds=rounds)
        # the last question, and two supersteps a round of tools; some to spare
        course = Course(2 * rounds + 5)
        async with (
            asked_ahead(effects, "reply", call) as ahead,
            aclosing(
                run(graph, state, replace(context, effects=ahead), context.sink, course)
            ) as events,
        ):
            async for event in events:
                yield event

    return flow
