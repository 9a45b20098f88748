"""Flow `session`: admission, the opening frames, what is recalled; then the graph: process ⇄ tools.

What comes before the first question and after the last answer is no node of its own: a superstep
of the engine costs more than all of it.

The engine's thread holds what users and the model said, and nothing else: it starts from what the
conversation store holds, so that a thread that missed a turn is set right by the next one. What a
run needs beside that goes from node to node in channels that are not kept. While an answer is made
nothing is read from the thread.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
from langgraph.channels import UntrackedValue
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from contract.errors import EffectFailed
from contract.flow import Event, Flow
from contract.flows.session import (
    SessionCreated,
    SessionData,
    SessionDone,
    SessionText,
    TextData,
    Thinking,
    failed,
    lock_key,
)
from contract.model import ModelCall, Usage
from contract.ports import Effects
from contract.stores import Turn
from graph_impl.ahead import asked_ahead
from graph_impl.engine import Course, Sink, run
from graph_impl.rounds import Plain, calls_of, check_model, plain_tool, question, started
from graph_impl.templates import FOLDER, Render, system_prompt
from graph_impl.threads import Threads
from rules import session as rules
from rules.answers import ModelAnswer
from rules.conversation import reply_turn, session_busy, window
from rules.memories import entries, worth
from rules.model_calls import prompt_messages, tool_answer, tool_round
from rules.prompts import SESSION_PROMPT
from rules.session import SessionAsked

log = logging.getLogger(__name__)


class SessionState(TypedDict, total=False):
    """What flows between the nodes; only `messages` are kept."""

    messages: list[Plain]
    asked: Annotated[list[Plain], UntrackedValue]
    tools: Annotated[list[Plain], UntrackedValue]
    text: Annotated[str, UntrackedValue]
    usage: Annotated[Plain, UntrackedValue]


@dataclass(frozen=True, slots=True)
class Admitted:
    """A turn that was taken: what was said before it, and whether its session is new."""

    turn: Turn
    earlier: tuple[Turn, ...]
    new: bool


@dataclass(frozen=True, slots=True)
class SessionContext:
    """What one run reaches the world and the client through; never part of the state."""

    asked: SessionAsked
    admitted: Admitted
    effects: Effects
    render: Render
    sink: Sink


Session = Runtime[SessionContext]
# Commands, not conditional edges: for an edge the engine puts the whole state together once more.
ToTools = Command[Literal["tools", "__end__"]]


async def _admit(asked: SessionAsked, effects: Effects) -> Admitted:
    """Check model, lock and session, and store what was said; raises `Refused`."""
    options, session = asked.options, rules.session_of(asked)
    await check_model(effects, options.model_id, options.max_tokens)
    if not await effects.locks.acquire("session", lock_key(session), options.lock_ttl):
        raise session_busy()
    message_id = await effects.ids.new("message")
    earlier = await effects.conversations.history(
        "history", session, before=message_id, limit=options.history_limit
    )
    new = rules.check_known(asked, earlier)
    turn = rules.sent(asked, message_id)
    await effects.conversations.put("message", turn)
    return Admitted(turn, earlier, new)


async def _lay_out(context: SessionContext) -> SessionState:
    """Recall what is known of the user, and lay out the question; raises `EffectFailed`."""
    options, admitted = context.asked.options, context.admitted
    with context.effects.trace.node("recall"):
        memories = await _memories(context)
    system = context.render({"system_prompt": options.system_prompt, "memories": memories})
    history = window(admitted.earlier, options.history_tokens)
    asked = prompt_messages(system, history, admitted.turn)
    tools = await context.effects.tools.list("offer") if options.enable_tools else ()
    return {
        "messages": [_kept(turn) for turn in (*admitted.earlier, admitted.turn)],
        "asked": msgspec.to_builtins(asked),
        "tools": [plain_tool(one) for one in tools],
        "text": "",
        "usage": msgspec.to_builtins(Usage()),
    }


async def _memories(context: SessionContext) -> str:
    wanted = rules.recall(context.asked, new=context.admitted.new)
    if wanted is None:
        return ""
    try:
        return rules.told(await context.effects.memory.recall("recall", wanted))
    except EffectFailed as failure:
        log.warning("nothing is recalled: %s", failure.fault.code)
        return ""


async def _process(state: SessionState, runtime: Session) -> ToTools:
    """Ask the model once; an answer that calls no tool is kept."""
    context, options = runtime.context, runtime.context.asked.options
    rounds = options.max_tool_iterations
    call = question(options, state["asked"], state["tools"], rounds=rounds)
    with context.effects.trace.node("process"):
        answer = await _read(context, call)
    text = state["text"] + answer.text
    usage = msgspec.convert(state["usage"], Usage) + answer.usage
    calls = answer.calls(call)
    if not calls:
        return Command(update=await _keep(state, context, text, usage), goto="__end__")
    update: SessionState = {
        "asked": [*state["asked"], msgspec.to_builtins(tool_round(answer.text, calls))],
        "text": text,
        "usage": msgspec.to_builtins(usage),
    }
    return Command(update=update, goto="tools")


async def _read(context: SessionContext, call: ModelCall) -> ModelAnswer:
    """Read an answer to its end, sending its text on the way."""
    answer = ModelAnswer()
    async for chunk in context.effects.model.stream("reply", call):
        if text := answer.add(chunk):
            await context.sink.say(SessionText(TextData(text)))
    await context.sink.taken()
    return answer


async def _tools(state: SessionState, runtime: Session) -> Command[Literal["process"]]:
    """Run the round's calls side by side; remember them in index order."""
    context = runtime.context
    calls = calls_of(state["asked"][-1])
    answers: list[Plain] = []
    with context.effects.trace.node("tools"):
        async with started(context.effects, calls) as running:
            for call, task in zip(calls, running, strict=True):
                answers.append(msgspec.to_builtins(tool_answer(call, await task)))
    return Command(update={"asked": [*state["asked"], *answers]}, goto="process")


async def _keep(
    state: SessionState, context: SessionContext, text: str, usage: Usage
) -> SessionState:
    """Store the answer, say that the session is free again, and end the stream."""
    effects, turn = context.effects, context.admitted.turn
    kept = reply_turn(await effects.ids.new("reply"), turn, text)
    await effects.conversations.put("reply", kept)
    await effects.locks.release("session", lock_key(rules.session_of(context.asked)))
    await context.sink.send(rules.done(kept, usage))
    return {"messages": [*state["messages"], _kept(kept)]}


def _kept(turn: Turn) -> Plain:
    return {"id": turn.message_id, "role": turn.role, "content": turn.content}


def build(threads: Threads | None) -> CompiledStateGraph[Any, SessionContext, Any, Any]:
    """Compile the graph; without threads it keeps nothing."""
    graph = StateGraph(SessionState, context_schema=SessionContext)
    graph.add_node("process", _process)
    graph.add_node("tools", _tools)
    graph.add_edge(START, "process")
    return graph.compile(threads.saver if threads else None, name="session")


def session(prompts: Path = FOLDER, threads: Threads | None = None) -> Flow:
    """Build the flow with the prompts of a folder; its threads are kept where they are given."""
    render = system_prompt("session_system.md", prompts, SESSION_PROMPT)
    kept, rehearsed = build(threads), build(None)

    async def flow(asked: SessionAsked, effects: Effects) -> AsyncIterator[Event]:
        with effects.trace.node("prepare"):
            admitted = await _admit(asked, effects)
        thread = rules.session_of(asked)
        if admitted.new:
            yield SessionCreated(SessionData(thread))
        yield Thinking()
        context = SessionContext(asked, admitted, effects, render, Sink())
        keeps = threads is not None and not effects.rehearsal
        graph = kept if keeps else rehearsed
        rounds = asked.options.max_tool_iterations
        # the last question, and two supersteps a round of tools; some to spare
        course = Course(2 * rounds + 5, thread if keeps else None)
        end: SessionDone | None = None
        try:
            state = await _lay_out(context)
            call = question(asked.options, state["asked"], state["tools"], rounds=rounds)
            async with (
                asked_ahead(effects, "reply", call) as ahead,
                aclosing(
                    run(graph, state, replace(context, effects=ahead), context.sink, course)
                ) as events,
            ):
                async for event in events:
                    if isinstance(event, SessionDone):
                        end = event  # goes out once the thread is kept
                    else:
                        yield event
        except EffectFailed as failure:
            yield failed(failure.fault.code)
            return
        if end is None:
            return
        yield end
        if threads is not None and keeps:
            await threads.tidy(thread)
        with effects.trace.node("extract"):
            await _learn(context, end)

    return flow


async def _learn(context: SessionContext, end: SessionDone) -> None:
    """Draw facts from the conversation and remember them; what fails is not learnt.

    Nor is what comes too late: of a session that was deleted meanwhile nothing is to be left.
    """
    effects, admitted, asked = context.effects, context.admitted, context.asked
    message = end.data.final_message
    answer = reply_turn(message.id, admitted.turn, message.content)
    call = rules.extraction(asked, (*admitted.earlier, admitted.turn, answer))
    if call is None or asked.body.user_id is None:
        return
    try:
        said = [chunk.text async for chunk in effects.model.stream("extract", call)]
        found = worth("".join(said), asked.options.least_confidence)
        if found and await effects.conversations.find("learn", message.id):
            ids = [await effects.ids.new("memory") for _ in found]
            learnt = entries(found, ids, asked.body.user_id, rules.session_of(asked))
            await effects.memory.write("learn", learnt)
    except EffectFailed as failure:
        log.warning("nothing is learnt: %s", failure.fault.code)
