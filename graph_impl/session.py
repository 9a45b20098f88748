"""Flow `session`: recall_memory → process ⇄ tools → extract_memory, behind its admission.

The thread of a session holds its messages, and nothing else. A run starts from what the
conversation store holds, so that a thread that missed a turn is set right by the next one. The
thread is stored once the answer is whole, before `extract_memory` ends the stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from operator import add
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from contract.flow import Event, Flow
from contract.flows.session import (
    SessionCreated,
    SessionData,
    SessionText,
    TextData,
    Thinking,
    failed,
)
from contract.model import Usage
from contract.ports import Effects
from contract.stores import Turn
from graph_impl import rounds
from graph_impl.engine import Graph, RunContext, add_nodes, end_on_failure, run
from graph_impl.rounds import Plain, RoundState, plain
from graph_impl.templates import FOLDER, read_prompt
from graph_impl.threads import Threads
from rules import session as rules
from rules.conversation import end_session_turn, tool_answer
from rules.memories import as_paragraph
from rules.prompts import Render
from rules.session import SESSION_PROMPT, SessionTurnRequest


class SessionState(RoundState, total=False):
    """What flows between the nodes; of all this the thread keeps `messages`.

    `reply` is the turn the answer is stored as.
    """

    messages: Annotated[list[Plain], add]
    memories: str
    reply: Plain


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext(RunContext):
    """What one run reaches the world and the client through, and the turn it was admitted with."""

    request: SessionTurnRequest
    render: Render
    turn: Turn
    earlier: tuple[Turn, ...]
    new: bool


Session = Runtime[SessionContext]


async def _recall_memory(_: SessionState, runtime: Session) -> SessionState:
    """Open the stream and recall memories of the user."""
    context = runtime.context
    if context.new:
        session = rules.session_of(context.request)
        await context.sink.push(SessionCreated(SessionData(session)))
    await context.sink.send(Thinking())
    query = rules.recall(context.request, new=context.new)
    return {"memories": as_paragraph(await rounds.recalled(context.effects, query))}


async def _process(
    state: SessionState, runtime: Session
) -> Command[Literal["tools", "extract_memory"]]:
    """Call the model once; an answer that calls no tool is stored."""
    context = runtime.context
    answer, update = await rounds.open_round(
        state,
        context,
        "reply",
        context.request.options,
        lay_out=lambda: rules.lay_out(
            context.request,
            context.effects,
            (*context.earlier, context.turn),
            state["memories"],
            context.render,
        ),
        event=lambda text: SessionText(TextData(text)),
    )
    if update:
        return Command(update=update, goto="tools")
    session, text = rules.session_of(context.request), state["text"] + answer.text
    reply = await end_session_turn(context.effects, session, context.turn, text)
    stored = {"messages": [_message(reply)], "usage": plain(answer.usage), "reply": plain(reply)}
    return Command(update=stored, goto="extract_memory")


async def _tools(state: SessionState, runtime: Session) -> SessionState:
    """Run the round's calls side by side; remember them in index order."""
    calls = rounds.calls_of(state["prompt"])
    async with rounds.started_tools(runtime.context.effects, calls) as running:
        results = [await task for task in running]
    return {"prompt": [plain(tool_answer(*pair)) for pair in zip(calls, results, strict=True)]}


async def _extract_memory(state: SessionState, runtime: Session) -> SessionState:
    """End the stream, then learn from the conversation."""
    context = runtime.context
    reply = msgspec.convert(state["reply"], Turn)
    await context.sink.send(rules.done(reply, msgspec.convert(state["usage"], Usage)))
    turns = (*context.earlier, context.turn)
    await rounds.attempt_learning(rules.learn(context.request, context.effects, turns, reply))
    return {}


def build(threads: Threads | None = None) -> Graph:
    """Compile the graph; without threads it stores nothing."""
    graph = StateGraph(SessionState, context_schema=SessionContext)
    end_on_failure(graph, lambda code: (failed(code),))
    add_nodes(
        graph,
        recall_memory=_recall_memory,
        process=_process,
        tools=_tools,
        extract_memory=_extract_memory,
    )
    graph.add_edge(START, "recall_memory")
    graph.add_edge("recall_memory", "process")
    graph.add_edge("tools", "process")
    graph.add_edge("extract_memory", END)
    return graph.compile(threads, name="session")


_without_threads = cache(build)  # it is the same graph in every flow


def _message(turn: Turn) -> Plain:
    return {"id": turn.message_id, "role": turn.role, "content": turn.content}


def session(prompts: Path = FOLDER, threads: Threads | None = None) -> Flow:
    """Build the flow with the prompts of a folder; `threads` stores its threads, if given."""
    render = read_prompt("session_system.md", prompts, SESSION_PROMPT)
    rehearsed = _without_threads()
    stored = rehearsed if threads is None else build(threads)

    async def flow(request: SessionTurnRequest, effects: Effects) -> AsyncIterator[Event]:
        with effects.trace.node("admission"):
            turn, earlier, new = await rules.admit(request, effects)
        context = SessionContext(
            effects=effects, request=request, render=render, turn=turn, earlier=earlier, new=new
        )
        stores = threads is not None and not effects.rehearsal
        events = run(
            stored if stores else rehearsed,
            {"messages": [_message(one) for one in (*earlier, turn)]},
            context,
            # three nodes, and two supersteps a round of tools; some to spare
            steps=2 * request.options.max_tool_iterations + 8,
            thread=rules.session_of(request) if stores else None,
        )
        async with aclosing(events):
            async for event in events:
                yield event

    return flow
