"""The pipeline flow as a graph of eight nodes with one branch."""

from __future__ import annotations

import logging
import operator
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Final, Literal

import msgspec
import openai
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
)
from langgraph.constants import TAG_NOSTREAM
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from cutover import EffectFailed, Request, StackFailed, wrap_graph
from cutover.errors import Failed, outcome_of
from cutover.tape import current_run
from effects import conversations
from effects.conversations import Turn
from effects.memory import memories, namespace
from effects.models import tokens
from effects.world import new_id, read_clock
from graph_impl.flow import (
    Context,
    CurrentStore,
    options_of,
    prompt,
    send,
    store_of,
    streamed,
    told,
)
from graph_impl.model import ask, chat_model, find_model
from rules import extraction, intents, prompts
from rules.flows import pipeline as wire
from rules.models import HISTORY

log = logging.getLogger(__name__)


class PipelineInput(TypedDict, total=False):
    """The body of a request."""

    user_id: str
    message: str
    session_id: str
    user_name: str | None
    interlocutor: dict[str, str] | None


class PipelineState(PipelineInput, total=False):
    """The state, as the document names it."""

    current_input: str
    end_intent: bool
    history: list[dict[str, Any]]
    token_info: dict[str, Any]
    involves_memory: bool
    retrieved_memories: list[dict[str, Any]]
    context_messages: list[AnyMessage]
    generated_response: str | None
    errors: Annotated[list[dict[str, str]], operator.add]


Pipeline = Runtime[Context]

FRESH: Final[dict[str, Any]] = {"retrieved_memories": [], "errors": Overwrite([])}
"""What every turn begins with, also on a thread that a saver has kept."""


def _options(runtime: Pipeline) -> wire.PipelineOptions:
    return options_of(runtime, wire.PipelineOptions)


CAUGHT = (EffectFailed, openai.OpenAIError, StackFailed)
"""Failures that a node records, and that the graph goes on from."""


def _recorded(node: str, error: Exception) -> dict[str, Any]:
    """Return the update of a node that failed."""
    log.warning("node=%s failed error=%s", node, error)
    outcome = outcome_of(error)
    code = outcome.code if isinstance(outcome, Failed) else "failed"
    return {"errors": [{"node": node, "code": code}]}


async def input_processor(state: PipelineState) -> dict[str, Any]:
    """Trim the message and detect the wish to end."""
    trimmed = state["message"].strip()
    ends = intents.wishes_to_end(trimmed)
    return {**FRESH, "current_input": trimmed, "end_intent": ends}


async def token_monitor(state: PipelineState, runtime: Pipeline) -> dict[str, Any]:
    """Count tokens, decide what follows from them, and compress the history."""
    options = _options(runtime)
    empty = wire.TokenInfo(0, options.token_limit, "continue")
    try:
        turns = await conversations.history("pipeline", state["session_id"], HISTORY)
    except CAUGHT as error:
        return _recorded("token_monitor", error) | {
            "token_info": msgspec.to_builtins(empty),
            "history": [],
        }
    said = [*(turn.content for turn in turns), state["current_input"]]
    sizes, exact = zip(*(tokens(one, options.model_id) for one in said), strict=True)
    info = wire.TokenInfo(
        sum(sizes),
        options.token_limit,
        wire.token_action(sum(sizes), options.token_limit),
        estimated=not all(exact),
    )
    kept = turns[wire.turns_to_drop(sizes, options.token_limit) :]
    return {
        "token_info": msgspec.to_builtins(info),
        "history": [msgspec.to_builtins(turn) for turn in kept],
    }


async def memory_check(state: PipelineState, runtime: Pipeline) -> dict[str, Any]:
    """Ask the model whether memories are needed; its answer is not shown."""
    asked = prompt("pipeline_memory_check", {"message": state["current_input"]})
    try:
        model = chat_model(find_model(_options(runtime).model_id), temperature=0.1, max_tokens=10)
        quiet = model.with_config(tags=[TAG_NOSTREAM])
        answer = await ask(quiet, [HumanMessage(asked)])
    except CAUGHT as error:
        return _recorded("memory_check", error) | {"involves_memory": False}
    return {"involves_memory": intents.needs_memory(str(answer.content))}


def route_by_memory_check(state: PipelineState) -> Literal["rag_retriever", "context_builder"]:
    """Return where the memory check leads."""
    return "rag_retriever" if state["involves_memory"] else "context_builder"


async def rag_retriever(state: PipelineState, runtime: Pipeline) -> dict[str, Any]:
    """Search the user's memories; with an interlocutor, those of the relation."""
    other = state.get("interlocutor")
    try:
        items = await store_of(runtime).asearch(
            namespace(state["user_id"]),
            query=extraction.memory_query([state["current_input"]]),
            filter={"relation": other["relation"]} if other else None,
            limit=extraction.RECALLED,
        )
    except CAUGHT as error:
        return _recorded("rag_retriever", error)
    return {"retrieved_memories": [msgspec.to_builtins(one) for one in memories(items)]}


async def context_builder(state: PipelineState, runtime: Pipeline) -> dict[str, Any]:
    """Assemble what the model is shown."""
    options, other = _options(runtime), state.get("interlocutor")
    found = [one["text"] for one in state["retrieved_memories"]]
    pair = (other["name"], other["relation"]) if other else None
    system = prompt(
        "pipeline_system",
        {
            "system_prompt": options.system_prompt,
            "speakers": prompts.speakers(options.texts, state.get("user_name"), pair),
            "memories": prompts.memories_paragraph("pipeline", options.texts, found),
        },
    )
    earlier = [
        AIMessage(turn["content"]) if turn["role"] == "assistant" else HumanMessage(turn["content"])
        for turn in state["history"]
    ]
    shown = [SystemMessage(system), *earlier, HumanMessage(state["current_input"])]
    return {"context_messages": shown}


async def response_generator(state: PipelineState, runtime: Pipeline) -> dict[str, Any]:
    """Generate the reply; a failure behind its first token ends the run."""
    options, heard = _options(runtime), list[str]()
    try:
        model = chat_model(find_model(options.model_id), temperature=options.temperature)
        answer = await ask(model, state["context_messages"], heard)
        if not answer.content:  # filtered, or nothing but reasoning
            raise StackFailed(code="model_empty", blame="world")
    except CAUGHT as error:
        if any(heard):
            raise
        return _recorded("response_generator", error) | {"generated_response": None}
    return {"generated_response": str(answer.content)}


async def token_response(state: PipelineState, runtime: Pipeline) -> dict[str, Any]:
    """Append what the token monitor calls for."""
    said, action = state["generated_response"], state["token_info"]["action"]
    if said is None or action == "continue":
        return {}
    notice = prompts.text("pipeline", _options(runtime).texts, action)
    send(runtime, wire.PipelineToken(notice))
    return {"generated_response": said + notice}


async def output_formatter(state: PipelineState, runtime: Pipeline) -> dict[str, Any]:
    """Store the turns and format the reply for the client."""
    said, failed = state["generated_response"], dict[str, Any]()
    if said is not None:
        try:
            await _remember(state, said)
        except CAUGHT as error:
            failed = _recorded("output_formatter", error)
    errors = [*state["errors"], *failed.get("errors", [])]
    message = wire.PipelineMessage(
        success=said is not None,
        message=said,
        token_info=msgspec.convert(state["token_info"], wire.TokenInfo),
        end_intent=state["end_intent"],
        memories=tuple(one["id"] for one in state["retrieved_memories"]),
        errors=msgspec.convert(errors, tuple[wire.NodeFailure, ...]),
    )
    send(runtime, message)
    return failed


async def _remember(state: PipelineState, said: str) -> None:
    now = await read_clock()
    owner: dict[str, Any] = {
        "flow": "pipeline",
        "chat_id": state["session_id"],
        "user_id": state["user_id"],
        "at": now,
    }
    asked = await new_id("message")
    await conversations.add(Turn(id=asked, role="user", content=state["current_input"], **owner))
    replied = await new_id("message")
    await conversations.add(Turn(id=replied, role="assistant", content=said, **owner))


builder = StateGraph(PipelineState, context_schema=Context, input_schema=PipelineInput)
builder.add_node(input_processor)
builder.add_sequence([token_monitor, memory_check])
builder.add_sequence(
    [rag_retriever, context_builder, response_generator, token_response, output_formatter]
)
builder.add_edge(START, "input_processor")
builder.add_edge("input_processor", "token_monitor")
builder.add_conditional_edges("memory_check", route_by_memory_check)
builder.add_edge("output_formatter", END)

GRAPH = builder.compile(store=CurrentStore())


_taped = wrap_graph(GRAPH)
_events = told(wire.PipelineEvent, wire.PipelineToken)


async def stack(
    request: Request[wire.PipelineRequest, wire.PipelineOptions],
) -> AsyncIterator[wire.PipelineEvent]:
    """Run the graph for a request, and return the flow's events of what it streams."""
    stream = streamed(_taped, request, ("messages", "custom"), _events)
    async with aclosing(stream) as events:
        async for event in events:
            yield event
    if (run := current_run()) is not None:
        log.info("%s", wire.performance(run.nodes))
