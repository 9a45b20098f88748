"""The pipeline flow as a graph of eight nodes with one branch."""

import logging
import operator
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
import openai
from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from cutover import EffectFailed, StackFailed, wrap_graph
from cutover.errors import Failed, outcome_of
from effects import conversations
from effects.conversations import Turn
from effects.memory import memories, namespace
from effects.models import tokens
from effects.world import new_id, read_clock
from graph_impl.flow import (
    Context,
    CurrentStore,
    message_of,
    options_of,
    prompt,
    send,
    stack_of,
    store_of,
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
    history: list[AnyMessage]
    token_info: dict[str, Any]
    involves_memory: bool
    retrieved_memories: list[dict[str, Any]]
    context_messages: list[AnyMessage]
    generated_response: str | None
    errors: Annotated[list[dict[str, str]], operator.add]


Pipeline = Runtime[Context]
_options = partial(options_of, wire.PipelineOptions)


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
    return {
        "current_input": trimmed,
        "end_intent": intents.wishes_to_end(trimmed),
        "retrieved_memories": [],
        "errors": Overwrite([]),
    }


async def token_monitor(state: PipelineState, runtime: Pipeline) -> dict[str, Any]:
    """Count tokens, decide what follows from them, and compress the history."""
    options = _options(runtime)
    try:
        turns = await conversations.history("pipeline", state["session_id"], HISTORY)
    except CAUGHT as error:
        empty = wire.TokenInfo(0, options.token_limit, "continue")
        failed = _recorded("token_monitor", error)
        return failed | {"token_info": msgspec.to_builtins(empty), "history": []}
    texts = [*(turn.content for turn in turns), state["current_input"]]
    sizes, exact = zip(*(tokens(one, options.model_id) for one in texts), strict=True)
    info = wire.TokenInfo(
        sum(sizes),
        options.token_limit,
        wire.token_action(sum(sizes), options.token_limit),
        estimated=not all(exact),
    )
    kept = turns[wire.turns_to_drop(sizes, options.token_limit) :]
    return {"token_info": msgspec.to_builtins(info), "history": list(map(message_of, kept))}


async def memory_check(state: PipelineState, runtime: Pipeline) -> dict[str, Any]:
    """Ask the model whether memories are needed; its answer is not shown."""
    question = prompt("pipeline_memory_check", {"message": state["current_input"]})
    try:
        model = chat_model(find_model(_options(runtime).model_id), temperature=0.1, max_tokens=10)
        answer = await ask(model, [HumanMessage(question)], shown=False)
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
    parameters = {
        "system_prompt": options.system_prompt,
        "speakers": prompts.speakers(options.texts, state.get("user_name"), pair),
        "memories": prompts.memories_paragraph("pipeline", options.texts, found),
    }
    system = SystemMessage(prompt("pipeline_system", parameters))
    return {"context_messages": [system, *state["history"], HumanMessage(state["current_input"])]}


async def response_generator(state: PipelineState, runtime: Pipeline) -> dict[str, Any]:
    """Generate the reply; a failure behind its first token ends the run."""
    options, heard = _options(runtime), list[str]()
    try:
        model = chat_model(find_model(options.model_id), temperature=options.temperature)
        answer = await ask(model, state["context_messages"], heard=heard)
        if not answer.content:  # filtered, or nothing but reasoning
            raise StackFailed(code="model_empty", blame="world")
    except CAUGHT as error:
        if any(heard):
            raise
        return _recorded("response_generator", error) | {"generated_response": None}
    return {"generated_response": str(answer.content)}


async def token_response(state: PipelineState, runtime: Pipeline) -> dict[str, Any]:
    """Append what the token monitor calls for."""
    reply, action = state["generated_response"], state["token_info"]["action"]
    if reply is None or action == "continue":
        return {}
    notice = prompts.text("pipeline", _options(runtime).texts, action)
    send(runtime, wire.PipelineToken(notice))
    return {"generated_response": reply + notice}


async def output_formatter(state: PipelineState, runtime: Pipeline) -> dict[str, Any]:
    """Store the turns and format the reply for the client."""
    reply, failed = state["generated_response"], dict[str, Any]()
    if reply is not None:
        try:
            await _remember(state, reply)
        except CAUGHT as error:
            failed = _recorded("output_formatter", error)
    errors = [*state["errors"], *failed.get("errors", [])]
    message = wire.PipelineMessage(
        success=reply is not None,
        message=reply,
        token_info=msgspec.convert(state["token_info"], wire.TokenInfo),
        end_intent=state["end_intent"],
        memories=tuple(one["id"] for one in state["retrieved_memories"]),
        errors=msgspec.convert(errors, tuple[wire.NodeFailure, ...]),
    )
    send(runtime, message)
    return failed


async def _remember(state: PipelineState, reply: str) -> None:
    session: dict[str, Any] = {"chat_id": state["session_id"], "user_id": state["user_id"]}
    session |= {"flow": "pipeline", "at": await read_clock()}
    for role, content in (("user", state["current_input"]), ("assistant", reply)):
        turn = session | {"id": await new_id("message"), "role": role, "content": content}
        await conversations.add(Turn(**turn))


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
stack = stack_of(_taped, wire.PipelineEvent, wire.PipelineToken)
"""Runs the graph for a request: tokens are the model's, and those that nodes append."""
