"""Flow `chat` as a graph: prepare → model ⇄ tools, each of which may end it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from contract.chat import (
    Accept,
    ChatEvent,
    ChatOptions,
    ChatRequest,
    End,
    Feedback,
    StartReply,
    Success,
    failed,
)
from contract.conversations import Turn
from contract.errors import EffectFailed
from contract.flow import Event, Flow, Request
from contract.model import Message, ModelCall
from contract.ports import Effects
from contract.tools import ToolCall, ToolResult, ToolSpec
from graph_impl import draft as drafts
from graph_impl.admission import admit, earlier
from graph_impl.draft import Draft
from graph_impl.prompting import FOLDER, Render, system_prompt
from graph_impl.run import Sink, run
from rules import chat as rules
from rules.messages import conversation, tool_answer, tool_round
from rules.prompting import parameters
from rules.texts import ending_notice
from rules.tool_calls import EARLY_ENDINGS, ToolCallAssembly

Plain = dict[str, Any]
"""A contract struct as plain values: what a checkpoint can hold."""


class ChatState(TypedDict, total=False):
    """What flows between the nodes: plain values only."""

    turn: Plain
    messages: list[Plain]
    tools: list[Plain]
    calls: list[Plain]
    taken: list[str]
    rounds: int
    finish: str
    at: int
    draft: Plain
    fault: str


@dataclass(frozen=True, slots=True)
class ChatContext:
    """What the nodes of one run reach the world through; never part of the state."""

    request: Request[ChatRequest, ChatOptions]
    model: rules.ChatModel
    effects: Effects
    sink: Sink

    async def send(self, sent: drafts.Sent) -> Draft:
        """Send the frames of a step; gives the draft after it."""
        draft, frames = sent
        for frame in frames:
            await self.sink.send(frame)
        return draft


Chat = Runtime[ChatContext]
# Commands, not conditional edges: for an edge the engine puts the whole state together once more.
ToModel = Command[Literal["model", "__end__"]]
ToTools = Command[Literal["tools", "__end__"]]


def _prepare(render: Render) -> Any:  # noqa: ANN401 - the engine's own node type
    async def prepare(_: ChatState, runtime: Chat) -> ToModel:
        context = runtime.context
        with context.effects.trace.node("prepare"):
            turn = await admit(context.request, context.model, context.effects)
            await context.sink.send(Accept())
            await context.sink.send(StartReply())
            try:
                update = await _lay_out(context, turn, render)
            except EffectFailed as failure:
                return await _ended({}, {"fault": failure.fault.code}, context)
            return Command(update=update, goto="model")

    return prepare


async def _lay_out(context: ChatContext, turn: Turn, render: Render) -> ChatState:
    effects, request = context.effects, context.request
    now = await effects.clock.now("prompt")
    system = render(parameters(now, request.options.timezone, request.body.prompt_params))
    messages = conversation(system, await earlier(turn, request.options, effects), turn)
    tools = await effects.tools.list("offer") if context.model.enable_tools else ()
    return {
        "turn": msgspec.to_builtins(turn),
        "messages": msgspec.to_builtins(messages),
        "tools": [_tool_to_plain(tool) for tool in tools],
        "calls": [],
        "taken": [],
        "rounds": 0,
        "finish": "",
        "at": 0,
        "draft": {},
    }


def _tool_to_plain(tool: ToolSpec) -> Plain:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": bytes(tool.parameters).decode(),
    }


def _tool(plain: Plain) -> ToolSpec:
    parameters = msgspec.Raw(plain["parameters"].encode())
    return ToolSpec(plain["name"], plain["description"], parameters)


def _draft(state: ChatState) -> Draft:
    return msgspec.convert(state.get("draft", {}), Draft)


def _call(state: ChatState, model: rules.ChatModel) -> ModelCall:
    """Build the next question to the model; the last one may not call tools."""
    tools = tuple(map(_tool, state["tools"]))
    last = state["rounds"] >= model.max_tool_iterations
    return ModelCall(
        model_id=model.model_id,
        messages=msgspec.convert(state["messages"], tuple[Message, ...]),
        temperature=model.temperature,
        max_tokens=model.max_tokens,
        tools=tools,
        tool_choice=("none" if last else "auto") if tools else None,
    )


@dataclass(slots=True)
class _Round:
    """What one answer of the model brings, chunk by chunk; lives inside one node."""

    draft: Draft
    assembly: ToolCallAssembly
    finish: str
    at: int

    async def read(self, context: ChatContext, call: ModelCall) -> str:
        """Read the answer to its end, sending on the way; gives the fault, "" for none."""
        options = context.request.options
        try:
            async for chunk in context.effects.model.stream("reply", call):
                self.at = chunk.at
                self.finish = chunk.finish or self.finish
                self.assembly.add(chunk.tool_calls)
                self.draft = await context.send(drafts.take(self.draft, chunk, options))
        except EffectFailed as failure:
            return failure.fault.code
        return ""


async def _model(state: ChatState, runtime: Chat) -> ToTools:
    """Ask the model once."""
    context = runtime.context
    call = _call(state, context.model)
    before = _draft(state)
    answer = _Round(before, ToolCallAssembly(), state["finish"], state["at"])
    with context.effects.trace.node("model"):
        fault = await answer.read(context, call)
    update: ChatState = {
        "finish": answer.finish,
        "at": answer.at,
        "draft": msgspec.to_builtins(answer.draft),
        "calls": [],
    }
    if fault:
        return await _ended(state, {**update, "fault": fault}, context)
    if call.tool_choice != "auto" or answer.finish in EARLY_ENDINGS:
        return await _ended(state, update, context)
    calls = answer.assembly.calls(state["rounds"], state["taken"])
    if not calls:
        return await _ended(state, update, context)
    said = tool_round(answer.draft.content[len(before.content) :], calls)
    update["calls"] = msgspec.to_builtins(calls)
    update["taken"] = [*state["taken"], *(call.id for call in calls)]
    update["messages"] = [*state["messages"], msgspec.to_builtins(said)]
    return Command(update=update, goto="tools")


async def _tools(state: ChatState, runtime: Chat) -> ToModel:
    """Run the round's calls side by side; show and remember them in index order."""
    context = runtime.context
    calls = msgspec.convert(state["calls"], tuple[ToolCall, ...])
    with context.effects.trace.node("tools"):
        return await _use(state, context, calls)


async def _use(state: ChatState, context: ChatContext, calls: tuple[ToolCall, ...]) -> ToModel:
    options, at, draft = context.request.options, state["at"], _draft(state)
    messages, fault = list(state["messages"]), ""
    for call in calls:
        news = Feedback(call.name, "running")
        draft = await context.send(drafts.feedback(draft, news, at, options))
    tasks = [asyncio.create_task(_run_tool(context, call)) for call in calls]
    try:
        for call, task in zip(calls, tasks, strict=True):
            result = await task
            at = max(at, result.at)
            messages.append(msgspec.to_builtins(tool_answer(call, result)))
            draft = await context.send(drafts.feedback(draft, _news(call, result), at, options))
    except EffectFailed as failure:
        fault = failure.fault.code
    finally:
        await _settle(tasks)
    update: ChatState = {
        "messages": messages,
        "rounds": state["rounds"] + 1,
        "at": at,
        "draft": msgspec.to_builtins(draft),
    }
    if fault:
        return await _ended(state, {**update, "fault": fault}, context)
    return Command(update=update, goto="model")


async def _run_tool(context: ChatContext, call: ToolCall) -> ToolResult:
    return await context.effects.tools.run("tool", call)


def _news(call: ToolCall, result: ToolResult) -> Feedback:
    return Feedback(call.name, "done" if result.ok else "error")


async def _settle(tasks: list[asyncio.Task[ToolResult]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _ended(before: ChatState, update: ChatState, context: ChatContext) -> Command[Any]:
    """Send what is left, store the reply, and end the stream.

    No node of its own: a superstep of the engine costs more than all that is done here.
    """
    state: ChatState = {**before, **update}
    options, draft = context.request.options, _draft(state)
    fault, at = state.get("fault", ""), state.get("at", 0)
    if not fault:
        notice = ending_notice(state["finish"], options.texts)
        draft = msgspec.structs.replace(draft, content=draft.content + notice)
    draft = await context.send(drafts.flush(draft, at, options))
    if not fault:
        fault = await _keep(context, msgspec.convert(state["turn"], Turn), draft.content)
    ending: ChatEvent = failed(options, fault) if fault else Success(draft.content)
    await context.sink.send(ending)
    await context.sink.send(End())
    return Command(update={**update, "draft": msgspec.to_builtins(draft)}, goto=END)


async def _keep(context: ChatContext, turn: Turn, content: str) -> str:
    """Store the finished reply and release the lock; gives the fault, "" for none."""
    effects = context.effects
    try:
        reply_id = await effects.ids.new("reply")
        await effects.conversations.put("reply", rules.reply(reply_id, turn, content))
        await effects.locks.release("message", rules.lock_key(turn.message_id))
    except EffectFailed as failure:
        return failure.fault.code
    return ""


def build(prompts: Path = FOLDER) -> CompiledStateGraph[Any, ChatContext, Any, Any]:
    """Compile the graph with the prompts of a folder."""
    render = system_prompt("chat_system.md", prompts)
    graph = StateGraph(ChatState, context_schema=ChatContext)
    graph.add_node("prepare", _prepare(render))
    graph.add_node("model", _model)
    graph.add_node("tools", _tools)
    graph.add_edge(START, "prepare")
    return graph.compile(name="chat")


def chat(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    graph = build(prompts)

    def flow(request: Request[ChatRequest, ChatOptions], effects: Effects) -> AsyncIterator[Event]:
        model = rules.settings(request.body, request.options)

        def context(sink: Sink) -> ChatContext:
            return ChatContext(request, model, effects, sink)

        # prepare and the last question, and two supersteps a round of tools; some to spare
        return run(graph, {}, context, steps=2 * model.max_tool_iterations + 5)

    return flow
