"""The companion flow as a graph: one for messages and pictures, with one place to ask the user.

Message: emotion ∥ memory → reasoning ⇄ tools, reasoning → human → reasoning or the end. Picture:
vision → memory_extraction → human → the end.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.channels import EphemeralValue
from langgraph.constants import TAG_NOSTREAM
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from typing_extensions import TypedDict

from cutover import EffectFailed, Request, wrap_graph
from effects import conversations, pauses
from effects.conversations import Turn
from effects.memory import Memory, memories, namespace
from effects.world import current, new_id, read_clock
from graph_impl.flow import (
    Context,
    CurrentStore,
    langchain_tools,
    options_of,
    prompt,
    run_round,
    send,
    store_of,
    streamed,
    told,
)
from graph_impl.model import CALLS, ask, chat_model, find_model
from rules import extraction, forms, intents, prompts
from rules.flows import companion as wire
from rules.forms import ASK_HUMAN_DESCRIPTION, ASK_HUMAN_SCHEMA
from rules.models import HISTORY, MOST_ITERATIONS, runs_tools, window

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

    `hitl_request` is the event that asks the user, `response` what was said of the reply.
    """

    turn: dict[str, Any]
    emotional_context: dict[str, Any]
    working_memory: str
    retrieved_memories: list[str]
    response: str
    iteration: int
    facts: list[dict[str, Any]]
    hitl_request: dict[str, Any] | None
    status: Literal["processing", "completed"]


Companion = Runtime[Context]

FRESH: Final[dict[str, Any]] = {
    "messages": [RemoveMessage(REMOVE_ALL_MESSAGES)],
    "retrieved_memories": [],
    "response": "",
    "iteration": 0,
    "facts": [],
    "hitl_request": None,
    "status": "processing",
}
"""What every turn begins with, also on a thread that a saver has kept."""


def _options(runtime: Companion) -> wire.CompanionOptions:
    return options_of(runtime, wire.CompanionOptions)


def _owner(state: CompanionState) -> str:
    return wire.memory_owner(state.get("user_id"), state["session_id"])


def _say(runtime: Companion, name: str, **values: object) -> str:
    """Send a fixed text and return it."""
    said = prompts.text("companion", _options(runtime).texts, name, **values)
    send(runtime, wire.CompanionText(said))
    return said


async def initialize(state: CompanionState, runtime: Companion) -> dict[str, Any]:
    """Read the dialogue and store the user's turn; every id is drawn before the first question."""
    options, session, image = (
        _options(runtime),
        state["session_id"],
        state.get("image"),
    )
    find_model(options.vision_model_id if image else options.model_id)
    turn = {
        "at": await read_clock(),
        "id": await new_id("message"),
        "reply_id": await new_id("message"),
        "image": image,
    }
    if image:
        content = prompts.text("companion", options.texts, "picture")
        await _keep(state, turn, HumanMessage(content))
        return {**FRESH, "turn": turn}
    earlier = await conversations.history("companion", session, HISTORY)
    message = HumanMessage(state["message"])
    await _keep(state, turn, message)
    budget = options.history_tokens
    shown = window(earlier, budget)
    told = {one.id for one in shown}
    hidden = [one.content for one in earlier if one.role == "user" and one.id not in told]
    return {
        **FRESH,
        "turn": turn,
        "messages": [*FRESH["messages"], *map(_message, shown), message],
        "working_memory": prompts.working_memory(len(earlier), hidden, options.texts),
    }


def _message(turn: Turn) -> AnyMessage:
    return AIMessage(turn.content) if turn.role == "assistant" else HumanMessage(turn.content)


async def _keep(state: CompanionState, turn: dict[str, Any], message: AnyMessage) -> None:
    """Store what was said, once."""
    replies = isinstance(message, AIMessage)
    stored = Turn(
        id=turn["reply_id"] if replies else turn["id"],
        flow="companion",
        chat_id=state["session_id"],
        role="assistant" if replies else "user",
        content=str(message.content),
        user_id=state.get("user_id"),
        at=turn["at"],
    )
    await pauses.idempotent(conversations.add, stored)


async def _finish(state: CompanionState, runtime: Companion, last: str) -> dict[str, Any]:
    """Store the reply, which ends with `last`, and end the stream."""
    reply = state["response"] + last
    await _keep(state, state["turn"], AIMessage(reply))
    send(runtime, wire.CompanionDone("completed"))
    return {"response": reply, "status": "completed"}


def entry_point(state: CompanionState) -> Sequence[str]:
    """Return where a request begins: pictures are seen, messages felt and remembered at once."""
    return ["vision"] if state["turn"]["image"] else ["emotion", "memory"]


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
    options = _options(runtime)
    last = state["iteration"] >= MOST_ITERATIONS
    asked = model = chat_model(find_model(options.model_id), temperature=options.temperature)
    if offered := _tools(state, options):
        asked = model.bind_tools(offered, tool_choice="none" if last else "auto")  # type: ignore[assignment]
    answer = await ask(asked, [SystemMessage(_system(state, options)), *state["messages"]])
    content, calls = str(answer.content), answer.additional_kwargs[CALLS]
    finish = answer.response_metadata["finish_reason"]
    if last or not runs_tools(finish, len(calls)):
        return {"messages": [answer], **await _finish(state, runtime, content)}
    question = None
    if (form := _asked(answer).form) is not None and offered:
        hitl_id, session = await new_id("hitl"), state["session_id"]
        question = wire.CompanionHitl(hitl_id, session, wire.QUESTION, form)
    return {
        "messages": [answer],
        "response": state["response"] + content,
        "iteration": state["iteration"] + 1,
        "hitl_request": msgspec.to_builtins(question),
    }


def _system(state: CompanionState, options: wire.CompanionOptions) -> str:
    """Return the system prompt; it is made anew each time and never stored."""
    now, mood = datetime.fromisoformat(state["turn"]["at"]), state["emotional_context"]
    recalled = state["retrieved_memories"]
    section = f"\n\n# 你记得的事\n{prompts.bullets(recalled)}" if recalled else ""
    given = prompts.moment_parameters(now, options.timezone) | {
        "emotion": mood["primary"],
        "intensity": f"{mood['intensity']:.2f}",
        "intent": intents.intent_snippet(state["message"]),
        "working_memory": state["working_memory"],
    }
    return prompt("companion_system", {**given, "memories": recalled, "memories_section": section})


async def _ask_human(**form: Any) -> str:
    """Refuse a form: one that can be answered becomes an interrupt, and never gets here."""
    valid = forms.asked_form(json.dumps(form)) is not None
    raise ToolException(prompts.tool_error("tool_failed" if valid else "bad_arguments"))


ASK_HUMAN = StructuredTool(
    name=forms.ASK_HUMAN,
    description=ASK_HUMAN_DESCRIPTION,
    args_schema=ASK_HUMAN_SCHEMA,
    coroutine=_ask_human,
    handle_tool_error=True,
)
"""The tool by which the model asks the user: one question a round, further ones are refused."""


def _tools(state: CompanionState, options: wire.CompanionOptions) -> list[BaseTool]:
    if not (options.enable_tools and find_model(options.model_id).tools):
        return []
    named = {"user_id": _owner(state), "session_id": state["session_id"]}
    return [*langchain_tools(current().tools.names, **named), ASK_HUMAN]


def _asked(answer: AIMessage) -> forms.AskedCalls:
    """Return which of an answer's calls is the question to the user."""
    calls = answer.additional_kwargs[CALLS]
    return forms.divide_calls([(call["name"], call["arguments"]) for call in calls])


def _answer(state: CompanionState) -> AIMessage:
    return next(one for one in reversed(state["messages"]) if isinstance(one, AIMessage))


def route_after_reasoning(state: CompanionState) -> Literal["tools", "human", "__end__"]:
    """Return where an answer leads; tools that are called beside a question run before it."""
    if state["status"] == "completed":
        return "__end__"
    alone = len(_answer(state).additional_kwargs[CALLS]) == 1
    return "human" if state["hitl_request"] and alone else "tools"


async def tools(state: CompanionState, runtime: Companion) -> dict[str, Any]:
    """Run the tools of a round, and send what they return; a question keeps its place."""
    answer, request = _answer(state), state["hitl_request"]
    calls, place = list(answer.additional_kwargs[CALLS]), _asked(answer).question
    question = calls.pop(place) if request and place is not None else None

    def report(result: ToolMessage) -> None:
        ok, content = result.status != "error", str(result.content)
        send(runtime, wire.CompanionToolResult(result.name or "", ok, content))

    others = AIMessage("", additional_kwargs={CALLS: calls})
    results = await run_round(others, _tools(state, _options(runtime)), report)
    if any(one.content == prompts.tool_error("outcome_unknown") for one in results):
        # The model would only try again.
        return await _finish(state, runtime, _say(runtime, "outcome_unknown"))
    if request and question and place is not None:
        results.insert(place, _told(request, question["id"], "…"))
    return {"messages": results}


def _told(request: dict[str, Any], call_id: str, content: str) -> ToolMessage:
    """Return what the model is told of a question; the answer replaces the message by its id."""
    return ToolMessage(content, id=request["hitl_id"], name=forms.ASK_HUMAN, tool_call_id=call_id)


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
            {"type": "image_url", "image_url": {"url": state["turn"]["image"]}},
        ]
    )
    system = SystemMessage(prompt("companion_vision", {"no_text": no_text}))
    read = str((await ask(model, [system, picture])).content)
    said = read or _say(runtime, "no_text")
    if state["action"] == "analyze_only" or not extraction.has_text(read, options.texts):
        return await _finish(state, runtime, said)
    return {"response": read}


def route_after_vision(state: CompanionState) -> Literal["memory_extraction", "__end__"]:
    """Return whether there is text to find facts in."""
    return "__end__" if state["status"] == "completed" else "memory_extraction"


async def memory_extraction(state: CompanionState, runtime: Companion) -> dict[str, Any]:
    """Find facts that are worth remembering, and the form that asks which of them to keep."""
    options = _options(runtime)
    model = chat_model(find_model(options.model_id), temperature=wire.READING_TEMPERATURE)
    question = [SystemMessage(prompt("companion_extraction", {})), HumanMessage(state["response"])]
    answer = await ask(model.with_config(tags=[TAG_NOSTREAM]), question)
    facts = extraction.read_facts(str(answer.content), options.least_confidence)
    if not facts:
        return await _finish(state, runtime, _say(runtime, "nothing_found"))
    form, hitl_id = extraction.memory_form(facts, options.texts), await new_id("hitl")
    request = wire.CompanionHitl(hitl_id, state["session_id"], wire.MEMORY, form)
    return {
        "facts": [msgspec.to_builtins(one) for one in facts],
        "hitl_request": msgspec.to_builtins(request),
    }


def route_after_extraction(state: CompanionState) -> Literal["human", "__end__"]:
    """Return whether there is something to ask the user."""
    return "__end__" if state["status"] == "completed" else "human"


# The user


async def human(state: CompanionState, runtime: Companion) -> dict[str, Any]:
    """Wait for the user's answer; tell the model, or remember what was approved."""
    request = state["hitl_request"]
    answer = msgspec.convert(interrupt(request), forms.HumanAnswer)
    assert request is not None  # noqa: S101 - the edges lead here with a question alone
    form = msgspec.convert(request["form"], forms.Form)
    if request["kind"] == wire.MEMORY:
        facts = msgspec.convert(state["facts"], tuple[extraction.Fact, ...])
        approved = extraction.approved_facts(facts, form, answer)
        return await _finish(state, runtime, await _remember(state, runtime, approved))
    asked = _answer(state)
    place = _asked(asked).question
    assert place is not None  # noqa: S101 - as above
    call_id = asked.additional_kwargs[CALLS][place]["id"]
    return {"messages": [_told(request, call_id, forms.answer_text(form, answer))]}


async def _remember(
    state: CompanionState, runtime: Companion, facts: Sequence[extraction.Fact]
) -> str:
    """Write facts into long-term memory and return what the user is told of it."""
    where, hitl_id = namespace(_owner(state)), (state["hitl_request"] or {})["hitl_id"]
    known: list[bool] = []
    for number, fact in enumerate(facts, 1):
        one = Memory(f"{hitl_id}-{number}", fact.text, fact.type, state["session_id"])
        known.append(await pauses.known(store_of(runtime).aput, where, one.id, one.value()))
    if not facts:
        return _say(runtime, "not_remembered")
    said = _say(runtime, "remembered", count=sum(known)) if any(known) else ""
    return said if all(known) else said + _say(runtime, "outcome_unknown")


def route_after_human(state: CompanionState) -> Literal["reasoning", "__end__"]:
    """Return what an answer is for: the model goes on with it, or the picture is done."""
    return "__end__" if state["status"] == "completed" else "reasoning"


builder = StateGraph(CompanionState, context_schema=Context, input_schema=CompanionInput)
builder.add_node(initialize)
builder.add_node(emotion)
builder.add_node(memory)
builder.add_node(reasoning)
builder.add_node(tools)
builder.add_node(vision)
builder.add_node(memory_extraction)
builder.add_node(human)
builder.add_edge(START, "initialize")
builder.add_conditional_edges("initialize", entry_point, ["emotion", "memory", "vision"])
builder.add_edge(["emotion", "memory"], "reasoning")
builder.add_conditional_edges("reasoning", route_after_reasoning)
builder.add_conditional_edges("tools", route_after_tools)
builder.add_conditional_edges("vision", route_after_vision)
builder.add_conditional_edges("memory_extraction", route_after_extraction)
builder.add_conditional_edges("human", route_after_human)

GRAPH = builder.compile(store=CurrentStore())


async def _humans_answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return the user's answer; raises `Paused` while there is none."""
    given: dict[str, Any] = msgspec.to_builtins(await pauses.answer(question["hitl_id"]))
    return given


_taped = wrap_graph(GRAPH, answer=_humans_answer).with_config(recursion_limit=MOST_STEPS)


_events = told(wire.CompanionEvent, wire.CompanionText)


def stack(
    request: Request[wire.CompanionRequest, wire.CompanionOptions],
) -> AsyncIterator[wire.CompanionEvent]:
    """Run the graph for a request: text is the model's, all other events are the nodes'."""
    return streamed(_taped, request, ("messages", "custom", "updates"), _events)
