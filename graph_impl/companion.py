"""The companion flow as a graph: one for messages and pictures, with one place to ask the user.

Message: emotion ∥ memory → reasoning ⇄ tools, reasoning → human → reasoning or the end. Picture:
vision → memory_extraction → human → the end.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.channels import EphemeralValue
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from typing_extensions import TypedDict

from cutover import EffectFailed, wrap_graph
from effects import conversations, pauses
from effects.conversations import Turn
from effects.memory import Memory, memories, namespace
from effects.world import new_id, read_clock
from graph_impl.flow import (
    Context,
    CurrentStore,
    answer,
    langchain_tools,
    options_of,
    prompt,
    replacing,
    run_round,
    send,
    stack_of,
    store_of,
)
from graph_impl.model import CALLS, ask, calls_to_run, chat_model, find_model
from rules import extraction, forms, intents, prompts
from rules.flows import companion as wire
from rules.models import HISTORY, MOST_ITERATIONS, window

log = logging.getLogger(__name__)

MOST_STEPS = 3 * MOST_ITERATIONS + 10
"""Supersteps of an exchange: a round that ends in a question has three."""


class CompanionInput(TypedDict, total=False):
    """The body of either request; one with an `image`, of this turn alone, is about a picture."""

    session_id: str
    user_id: str | None
    message: str
    image: Annotated[str, EphemeralValue]
    action: Literal["analyze_only", "analyze_for_memory"]


class CompanionState(CompanionInput, MessagesState, total=False):
    """The state; `messages` are the dialogue, and what the rounds add to it.

    `hitl_request` is the event that asks the user, {} where there is none, and `question_at` the
    place of the call that it stands for; `response` is the reply so far.
    """

    turn: dict[str, Any]
    reply_id: str
    picture: str | None
    emotional_context: dict[str, Any]
    working_memory: str
    retrieved_memories: list[str]
    response: str
    iteration: int
    facts: list[dict[str, Any]]
    hitl_request: dict[str, Any]
    question_at: int | None
    status: Literal["processing", "completed"]


Companion = Runtime[Context]
_options = partial(options_of, wire.CompanionOptions)


def _owner(state: CompanionState) -> str:
    return wire.memory_owner(state.get("user_id"), state["session_id"])


def _notice(runtime: Companion, name: str, **values: object) -> str:
    """Send a fixed text and return it."""
    notice = prompts.text("companion", _options(runtime).texts, name, **values)
    send(runtime, wire.CompanionText(notice))
    return notice


async def initialize(state: CompanionState, runtime: Companion) -> dict[str, Any]:
    """Read the dialogue and store the user's turn; every id is drawn before the first question."""
    options, session, image = _options(runtime), state["session_id"], state.get("image")
    find_model(options.vision_model_id if image else options.model_id)
    now, turn_id, reply_id = await read_clock(), await new_id("message"), await new_id("message")
    earlier = [] if image else await conversations.history("companion", session, HISTORY)
    content = prompts.text("companion", options.texts, "picture") if image else state["message"]
    user = state.get("user_id")
    turn = Turn(turn_id, "companion", session, "user", content, user_id=user, at=now)
    await pauses.idempotent(conversations.add, turn)
    shown = window(earlier, options.history_tokens)
    hidden = earlier[: len(earlier) - len(shown)]
    topics = [one.content for one in hidden if one.role == "user"]
    return {
        "turn": msgspec.to_builtins(turn),
        "reply_id": reply_id,
        "picture": image,
        "messages": replacing([*shown, turn]),
        "working_memory": prompts.working_memory(len(earlier), topics, options.texts),
        "retrieved_memories": [],
        "response": "",
        "iteration": 0,
        "facts": [],
        "hitl_request": {},
        "question_at": None,
        "status": "processing",
    }


async def _finish(state: CompanionState, runtime: Companion, last: str) -> dict[str, Any]:
    """Store the reply, which ends with `last`, and end the stream."""
    reply = state["response"] + last
    turn = state["turn"] | {"id": state["reply_id"], "role": "assistant", "content": reply}
    await pauses.idempotent(conversations.add, Turn(**turn))
    send(runtime, wire.CompanionDone("completed"))
    return {"response": reply, "status": "completed"}


def entry_point(state: CompanionState) -> Sequence[str]:
    """Return where a request begins: pictures are seen, messages felt and remembered at once."""
    return ["vision"] if state["picture"] else ["emotion", "memory"]


def unless_done(following: str) -> Callable[[CompanionState], str]:
    """Return an edge to a node, or to the end once the reply is whole."""

    def route(state: CompanionState) -> str:
        return END if state["status"] == "completed" else following

    return route


# Messages


async def emotion(state: CompanionState, runtime: Companion) -> dict[str, Any]:
    """Read the user's emotion from the message, and send it."""
    found = intents.emotion_of(state["message"])
    send(runtime, found)
    return {"emotional_context": msgspec.to_builtins(found)}


async def memory(state: CompanionState, runtime: Companion) -> dict[str, Any]:
    """Recall what is remembered of the user; a store that fails leaves the reply without it."""
    query, where = extraction.memory_query([state["message"]]), namespace(_owner(state))
    try:
        items = await store_of(runtime).asearch(where, query=query, limit=extraction.RECALLED)
    except EffectFailed as failure:
        log.warning("session=%s recalls nothing error=%s", state["session_id"], failure)
        items = []
    return {"retrieved_memories": [one.text for one in memories(items)]}


async def reasoning(state: CompanionState, runtime: Companion) -> dict[str, Any]:
    """Ask the model, with its tools; an answer that calls none is the end of the reply."""
    options, last = _options(runtime), state["iteration"] >= MOST_ITERATIONS
    model = chat_model(find_model(options.model_id), temperature=options.temperature)
    question, offered = [SystemMessage(_system(state, options))], _tools(state, options)
    answer = await ask(model, [*question, *state["messages"]], offered, last=last)
    content, calls = str(answer.content), calls_to_run(answer, last=last)
    if not calls:
        return {"messages": [answer], **await _finish(state, runtime, content)}
    request, place = None, None
    divided = forms.divide_calls([(call["name"], call["arguments"]) for call in calls])
    if offered and divided.form is not None:
        hitl_id, place = await new_id("hitl"), divided.question
        request = wire.CompanionHitl(hitl_id, state["session_id"], wire.QUESTION, divided.form)
    return {
        "messages": [answer],
        "response": state["response"] + content,
        "iteration": state["iteration"] + 1,
        "hitl_request": msgspec.to_builtins(request) or {},
        "question_at": place,
    }


def _system(state: CompanionState, options: wire.CompanionOptions) -> str:
    """Return the system prompt; it is made anew each time and never stored."""
    now, mood = datetime.fromisoformat(state["turn"]["at"]), state["emotional_context"]
    recalled = state["retrieved_memories"]
    parameters = prompts.moment_parameters(now, options.timezone) | {
        "emotion": mood["primary"],
        "intensity": f"{mood['intensity']:.2f}",
        "intent": intents.intent_snippet(state["message"]),
        "working_memory": state["working_memory"],
    }
    return prompt("companion_system", {**parameters, "memories": recalled})


async def _ask_human(**form: Any) -> str:
    """Refuse a form: one that can be answered becomes an interrupt, and never gets here."""
    valid = forms.form_of(json.dumps(form)) is not None
    raise ToolException(prompts.tool_error("tool_failed" if valid else "bad_arguments"))


ASK_HUMAN = StructuredTool(
    name=forms.ASK_HUMAN["name"],
    description=forms.ASK_HUMAN["description"],
    args_schema=forms.ASK_HUMAN["parameters"],
    coroutine=_ask_human,
    handle_tool_error=True,
)
"""The tool by which the model asks the user: one question a round, further ones are refused."""


def _tools(state: CompanionState, options: wire.CompanionOptions) -> list[BaseTool]:
    entry, enabled = find_model(options.model_id), options.enable_tools
    users = {"user_id": _owner(state), "session_id": state["session_id"]}
    offered = langchain_tools(entry, enabled=enabled, **users)
    return [*offered, ASK_HUMAN] if enabled and entry.tools else []


def _calls(state: CompanionState) -> list[dict[str, str]]:
    """Return the calls of the last answer."""
    answers = [one for one in state["messages"] if isinstance(one, AIMessage)]
    return list(answers[-1].additional_kwargs[CALLS])


def _result_of_question(state: CompanionState, place: int, content: str) -> ToolMessage:
    """Return what the model reads of its question; the answer replaces the message by its id."""
    hitl_id, call_id = state["hitl_request"]["hitl_id"], _calls(state)[place]["id"]
    return ToolMessage(content, id=hitl_id, name=ASK_HUMAN.name, tool_call_id=call_id)


def route_after_reasoning(state: CompanionState) -> Literal["tools", "human", "__end__"]:
    """Return where an answer leads; tools that are called beside a question run before it."""
    if state["status"] == "completed":
        return "__end__"
    return "human" if state["hitl_request"] and len(_calls(state)) == 1 else "tools"


async def tools(state: CompanionState, runtime: Companion) -> dict[str, Any]:
    """Run the tools of a round, and send what they return; a question keeps its place."""
    calls, place = _calls(state), state["question_at"]
    if place is not None:
        del calls[place]

    def report(result: ToolMessage) -> None:
        ok, content = result.status != "error", str(result.content)
        send(runtime, wire.CompanionToolResult(result.name or "", ok, content))

    results = await run_round(calls, _tools(state, _options(runtime)), report)
    if any(one.content == prompts.tool_error("outcome_unknown") for one in results):
        # The model would only try again.
        return await _finish(state, runtime, _notice(runtime, "outcome_unknown"))
    if place is not None:
        results.insert(place, _result_of_question(state, place, "…"))
    return {"messages": results}


def route_after_tools(state: CompanionState) -> Literal["reasoning", "human", "__end__"]:
    """Return what follows a round of tools."""
    if state["status"] == "completed":
        return "__end__"
    return "human" if state["hitl_request"] else "reasoning"


# Pictures


async def vision(state: CompanionState, runtime: Companion) -> dict[str, Any]:
    """Read the text in the picture; it is streamed as it comes."""
    options = _options(runtime)
    model = chat_model(find_model(options.vision_model_id), temperature=wire.READING_TEMPERATURE)
    no_text = prompts.text("companion", options.texts, "no_text")
    picture = HumanMessage(
        [
            {"type": "text", "text": prompts.text("companion", options.texts, "picture")},
            {"type": "image_url", "image_url": {"url": state["picture"]}},
        ]
    )
    system = SystemMessage(prompt("companion_vision", {"no_text": no_text}))
    read = str((await ask(model, [system, picture])).content)
    if state["action"] == "analyze_only" or not extraction.has_text(read, options.texts):
        return await _finish(state, runtime, read or _notice(runtime, "no_text"))
    return {"response": read}


async def memory_extraction(state: CompanionState, runtime: Companion) -> dict[str, Any]:
    """Find facts that are worth remembering, and the form that asks which of them to keep."""
    options = _options(runtime)
    model = chat_model(find_model(options.model_id), temperature=wire.READING_TEMPERATURE)
    question = [SystemMessage(prompt("companion_extraction", {})), HumanMessage(state["response"])]
    answer = await ask(model, question, shown=False)
    facts = extraction.read_facts(str(answer.content), options.least_confidence)
    if not facts:
        return await _finish(state, runtime, _notice(runtime, "nothing_found"))
    form, hitl_id = extraction.memory_form(facts, options.texts), await new_id("hitl")
    request = wire.CompanionHitl(hitl_id, state["session_id"], wire.MEMORY, form)
    return {
        "facts": [msgspec.to_builtins(one) for one in facts],
        "hitl_request": msgspec.to_builtins(request),
    }


# The user


async def human(state: CompanionState, runtime: Companion) -> dict[str, Any]:
    """Wait for the user's answer; tell the model, or remember what was approved."""
    request, place = state["hitl_request"], state["question_at"]
    answer = msgspec.convert(interrupt(request), forms.HumanAnswer)
    form = msgspec.convert(request["form"], forms.Form)
    if place is not None:
        return {"messages": [_result_of_question(state, place, forms.answer_text(form, answer))]}
    facts = msgspec.convert(state["facts"], tuple[extraction.Fact, ...])
    approved = extraction.approved_facts(facts, form, answer)
    return await _finish(state, runtime, await _remember(state, runtime, approved))


async def _remember(
    state: CompanionState, runtime: Companion, facts: Sequence[extraction.Fact]
) -> str:
    """Write facts into long-term memory and return the texts that were sent of it."""
    where, hitl_id = namespace(_owner(state)), state["hitl_request"]["hitl_id"]
    known: list[bool] = []
    for number, fact in enumerate(facts, 1):
        one = Memory(f"{hitl_id}-{number}", fact.text, fact.type, state["session_id"])
        known.append(await pauses.known(store_of(runtime).aput, where, one.id, one.value()))
    if not facts:
        return _notice(runtime, "not_remembered")
    reply = _notice(runtime, "remembered", count=sum(known)) if any(known) else ""
    return reply if all(known) else reply + _notice(runtime, "outcome_unknown")


builder = StateGraph(CompanionState, context_schema=Context, input_schema=CompanionInput)
for node in (initialize, emotion, memory, reasoning, tools, vision, memory_extraction, human):
    builder.add_node(node)
builder.add_edge(START, "initialize")
builder.add_conditional_edges("initialize", entry_point, ["emotion", "memory", "vision"])
builder.add_edge(["emotion", "memory"], "reasoning")
builder.add_conditional_edges("reasoning", route_after_reasoning)
builder.add_conditional_edges("tools", route_after_tools)
extract = "memory_extraction"
builder.add_conditional_edges("vision", unless_done(extract), [extract, END])
builder.add_conditional_edges(extract, unless_done("human"), ["human", END])
builder.add_conditional_edges("human", unless_done("reasoning"), ["reasoning", END])

GRAPH = builder.compile(store=CurrentStore())


_taped = wrap_graph(GRAPH, answer=lambda question: answer(question["hitl_id"]))
_taped = _taped.with_config(recursion_limit=MOST_STEPS)
stack = stack_of(_taped, wire.CompanionEvent, wire.CompanionText)
"""Runs the graph for a request: text is the model's, all other events are the nodes'."""
