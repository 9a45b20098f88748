"""Flow `chat`, as a graph.

initialize → prompt_generation → model_call ⇄ tool_execution → output_processing → cleanup

An effect that fails is noted as `failure`; the run then continues at output_processing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from operator import add
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command
from msgspec import UNSET
from msgspec.structs import replace

from contract.errors import EffectFailed
from contract.flow import Event, Flow, Request
from contract.flows.chat import (
    Accept,
    ChatOptions,
    ChatRequest,
    End,
    Send,
    StartReply,
    Success,
    ToolFeedback,
    failed,
)
from contract.model import Chunk
from contract.ports import Effects
from contract.stores import Turn
from graph_impl import rounds
from graph_impl.engine import Graph, RunContext, add_nodes, run
from graph_impl.rounds import Plain, plain, plains
from graph_impl.templates import FOLDER, read_prompt
from rules import chat as rules
from rules.conversation import ModelAnswer, store_reply, tool_answer, tool_round
from rules.prompts import Render


class ChatState(TypedDict, total=False):
    """What flows between the nodes: plain values only.

    `finish` is the model's reason to end, once it calls no more tools; `failure` the code of the
    effect that failed.
    """

    turn: Plain
    messages: Annotated[list[Plain], add]
    tools: list[Plain]
    draft: Plain
    finish: str
    failure: str


class Draft(msgspec.Struct, frozen=True, omit_defaults=True):
    """The text so far, and what of it the client has.

    `at` is the stamp of the newest item, `last` the frame sent last, `last_at` its stamp; both are
    None before the first.
    """

    content: str = ""
    reasoning: str = ""
    at: int = 0
    last: Send | None = None
    last_at: int | None = None

    @property
    def unsent(self) -> bool:
        """Whether the client lacks some of it."""
        if self.last is None:
            return bool(self.content or self.reasoning)
        return self.content != self.last.content or self.reasoning != (
            self.last.reason_content or ""
        )


_Sent = tuple[Draft, tuple[Send, ...]]
"""A draft after a step, and the frames the step sends."""


def _take(draft: Draft, chunk: Chunk, options: ChatOptions) -> _Sent:
    """Add a chunk; send when it brings the first text or the interval has passed."""
    reasoning = draft.reasoning + chunk.reasoning if options.wire == "extended" else ""
    grown = Draft(draft.content + chunk.text, reasoning, chunk.at, draft.last, draft.last_at)
    return _flush(grown, options) if _due(grown, options) else (grown, ())


def _due(draft: Draft, options: ChatOptions) -> bool:
    last = draft.last
    if last is None or draft.last_at is None:
        return True
    if draft.content and not last.content:
        return True
    if draft.reasoning and not last.reason_content:
        return True
    return draft.at - draft.last_at >= round(options.yield_interval * 1_000_000)


def _flush(draft: Draft, options: ChatOptions) -> _Sent:
    """Send what the client lacks."""
    return _send(draft, options) if draft.unsent else (draft, ())


def _feedback(draft: Draft, status: ToolFeedback, options: ChatOptions) -> _Sent:
    """Send a tool's status at once, unsent text before it."""
    draft, text = _flush(draft, options)
    draft, frames = _send(draft, options, status)
    return draft, text + frames


def _send(draft: Draft, options: ChatOptions, status: ToolFeedback | None = None) -> _Sent:
    frame = Send(
        draft.content,
        draft.reasoning if options.wire == "extended" else UNSET,
        UNSET if status is None else status,
    )
    if frame == draft.last:
        return draft, ()
    return replace(draft, last=frame, last_at=draft.at), (frame,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatContext(RunContext):
    """What one run reaches the world and the client through."""

    request: Request[ChatRequest, ChatOptions]
    model: rules.ChatModel
    render: Render

    async def send(self, sent: _Sent) -> Draft:
        """Send the frames of a step; return the draft after it."""
        draft, frames = sent
        if frames:
            await self.sink.send(*frames)
        return draft


Chat = Runtime[ChatContext]
Ready = Command[Literal["model_call", "output_processing"]]
Answered = Command[Literal["tool_execution", "output_processing"]]


def _fail(failure: EffectFailed, **update: Plain) -> Command[Any]:
    """Note an effect's failure, and continue where the reply ends."""
    return Command(update={"failure": failure.fault.code, **update}, goto="output_processing")


def _turn(state: ChatState) -> Turn:
    return msgspec.convert(state["turn"], Turn)


def _draft(state: ChatState) -> Draft:
    return msgspec.convert(state.get("draft", {}), Draft)


async def _initialize(_: ChatState, runtime: Chat) -> ChatState:
    """Admit the request and open the stream; raises `Refused`."""
    context = runtime.context
    turn = await rules.admit(context.request, context.model, context.effects)
    await context.sink.send(Accept(), StartReply())
    return {"turn": plain(turn)}


async def _prompt_generation(state: ChatState, runtime: Chat) -> Ready:
    """Lay out the conversation, and list the tools to offer."""
    context, turn = runtime.context, _turn(state)
    try:
        messages, tools = await rules.lay_out(
            context.request, context.model, context.effects, turn, context.render
        )
    except EffectFailed as failure:
        return _fail(failure)
    return Command(update={"messages": plains(messages), "tools": plains(tools)}, goto="model_call")


async def _model_call(state: ChatState, runtime: Chat) -> Answered:
    """Call the model once, sending its text on the way."""
    context, draft, answer = runtime.context, _draft(state), ModelAnswer()
    options = context.request.options
    call = rounds.model_call(context.model, state["messages"], state["tools"])
    try:
        async for chunk in context.effects.model.stream("reply", call):
            answer.add(chunk)
            draft = await context.send(_take(draft, chunk, options))
    except EffectFailed as failure:
        return _fail(failure, draft=plain(draft))
    calls = answer.calls(call)
    if not calls:
        update = {"draft": plain(draft), "finish": answer.finish}
        return Command(update=update, goto="output_processing")
    update = {"draft": plain(draft), "messages": [plain(tool_round(answer.text, calls))]}
    return Command(update=update, goto="tool_execution")


async def _tool_execution(state: ChatState, runtime: Chat) -> Ready:
    """Run the round's calls side by side; show and remember them in index order."""
    context, draft, messages = runtime.context, _draft(state), []
    calls, options = rounds.calls_of(state["messages"]), context.request.options
    for call in calls:
        draft = await context.send(_feedback(draft, rules.tool_feedback(call), options))
    try:
        async with rounds.started_tools(context.effects, calls) as running:
            for call, task in zip(calls, running, strict=True):
                result = await task
                messages.append(plain(tool_answer(call, result)))
                draft = replace(draft, at=max(draft.at, result.at))
                feedback = rules.tool_feedback(call, result)
                draft = await context.send(_feedback(draft, feedback, options))
    except EffectFailed as failure:
        return _fail(failure, draft=plain(draft))
    return Command(update={"draft": plain(draft), "messages": messages}, goto="model_call")


async def _output_processing(state: ChatState, runtime: Chat) -> ChatState:
    """Append the notice of an early end, send what the client lacks and store the reply."""
    context, draft = runtime.context, _draft(state)
    if "failure" in state:
        return {"draft": plain(await context.send(_flush(draft, context.request.options)))}
    notice = rules.ending_notice(state["finish"], context.request.options.texts)
    whole = replace(draft, content=draft.content + notice)
    draft = await context.send(_flush(whole, context.request.options))
    try:
        await store_reply(context.effects, _turn(state), draft.content)
    except EffectFailed as failure:
        return {"draft": plain(draft), "failure": failure.fault.code}
    return {"draft": plain(draft)}


async def _cleanup(state: ChatState, runtime: Chat) -> ChatState:
    """Release the lock and end the stream."""
    context, failure = runtime.context, state.get("failure")
    if failure is None:
        try:
            key = rules.lock_key(_turn(state).message_id)
            await context.effects.locks.release("message", key)
        except EffectFailed as error:
            failure = error.fault.code
    content = _draft(state).content
    ending = Success(content) if failure is None else failed(context.request.options, failure)
    await context.sink.send(ending, End())
    return {}


def build() -> Graph:
    """Compile the graph."""
    graph = StateGraph(ChatState, context_schema=ChatContext)
    add_nodes(
        graph,
        initialize=_initialize,
        prompt_generation=_prompt_generation,
        model_call=_model_call,
        tool_execution=_tool_execution,
        output_processing=_output_processing,
        cleanup=_cleanup,
    )
    graph.add_edge(START, "initialize")
    graph.add_edge("initialize", "prompt_generation")
    graph.add_edge("output_processing", "cleanup")
    graph.add_edge("cleanup", END)
    return graph.compile(name="chat")


def chat(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    graph, render = build(), read_prompt("chat_system.md", prompts, rules.DEFAULT_SYSTEM_PROMPT)

    def flow(request: Request[ChatRequest, ChatOptions], effects: Effects) -> AsyncIterator[Event]:
        model = rules.settings(request.body, request.options)
        context = ChatContext(effects=effects, request=request, model=model, render=render)
        # six nodes, and two supersteps a round of tools; some to spare
        return run(graph, {"messages": []}, context, steps=2 * model.max_tool_iterations + 10)

    return flow
