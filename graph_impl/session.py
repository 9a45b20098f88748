"""The session flow as a graph: recall, rounds of model and tools, and learning behind the answer.

The thread is the session. `messages` are the user's and the assistant's alone, as the conversation
store has them: each turn begins by replacing what the saver remembers with the store's record.
"""

import logging
from functools import partial
from typing import Any, Literal

import msgspec
import openai
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    get_buffer_string,
)
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from typing_extensions import TypedDict

from cutover import EffectFailed, Refused, Request, StackFailed, wrap_graph
from effects import conversations
from effects.conversations import Turn
from effects.memory import Memory, memories, namespace, readings
from effects.world import current, new_id, read_clock
from graph_impl.flow import (
    Context,
    CurrentStore,
    langchain_tools,
    message_of,
    options_of,
    prompt,
    replacing,
    run_round,
    send,
    stack_of,
    store_of,
)
from graph_impl.model import CALLS, ask, calls_to_run, chat_model, find_model, usage
from rules import extraction
from rules.flows import session as wire
from rules.models import HISTORY, MOST_ITERATIONS, window
from rules.prompts import memories_paragraph

log = logging.getLogger(__name__)
_options = partial(options_of, wire.SessionOptions)

MOST_STEPS = 2 * MOST_ITERATIONS + 10
"""Steps of the graph that LangGraph allows: two a round, and those around them."""


class SessionInput(TypedDict, total=False):
    """The body of a request."""

    message: str
    session_id: str | None
    user_id: str | None


class SessionState(SessionInput, MessagesState, total=False):
    """The state; `rounds` are what the model and its tools say before the answer is whole."""

    rounds: list[AnyMessage]
    iteration: int
    total_tokens: int
    recalled_memories: list[dict[str, Any]]


def _thread_id(runtime: Runtime[Context]) -> str:
    info = runtime.execution_info
    return (info and info.thread_id) or ""


async def _thread(request: Request[wire.SessionRequest, Any]) -> RunnableConfig:
    """Return what LangGraph runs a request with: the thread is the session, or a new one."""
    thread_id = request.body.session_id or await new_id("session")
    return {"configurable": {"thread_id": thread_id}, "recursion_limit": MOST_STEPS}


async def recall_memory(state: SessionState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Open the session, store the message, and look up what other sessions taught."""
    options, user_id = _options(runtime), state.get("user_id")
    find_model(options.model_id)  # a model that is missing is found out before anything is stored
    known = state.get("session_id")
    session_id = known or _thread_id(runtime)
    earlier = await conversations.history("session", known, HISTORY) if known else []
    if known and not earlier and options.unknown_session == "refuse":
        raise Refused(404, "unknown_session", "no session with this session_id is stored")
    turn = await _stored(state, session_id, "user", state["message"])
    if not earlier:
        send(runtime, wire.SessionCreated({"session_id": session_id}))
    send(runtime, wire.SessionThinking())
    recalled: list[Memory] = []
    if user_id and (options.recall == "always" or not earlier):
        recalled = await _recalled(store_of(runtime), user_id, session_id, state["message"])
    return {
        "session_id": session_id,
        "messages": replacing([*earlier, turn]),
        "rounds": [],
        "iteration": 0,
        "total_tokens": 0,
        "recalled_memories": [msgspec.to_builtins(one) for one in recalled],
    }


async def _stored(state: SessionState, session_id: str, role: Any, content: str) -> Turn:
    """Store a message under a new id."""
    turn_id, user, now = await new_id("message"), state.get("user_id"), await read_clock()
    turn = Turn(turn_id, "session", session_id, role, content, user_id=user, at=now)
    await conversations.add(turn)
    return turn


async def _recalled(store: BaseStore, user: str, session_id: str, message: str) -> list[Memory]:
    """Return memories that did not come from this session; none where the store fails."""
    others = {"session_id": {"$ne": session_id}}
    query = extraction.memory_query([message])
    try:
        items = await store.asearch(
            namespace(user), query=query, filter=others, limit=extraction.RECALLED
        )
    except EffectFailed as failure:
        log.warning("thread=%s has no memories error=%s", session_id, failure)
        items = []
    return memories(items)


async def process(state: SessionState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Ask the model, with its tools; store the answer and finish once no tool is wanted."""
    options = _options(runtime)
    entry, last = find_model(options.model_id), state["iteration"] >= MOST_ITERATIONS
    model = chat_model(entry, temperature=options.temperature)
    tools = langchain_tools(entry, enabled=options.enable_tools)
    *earlier, message = state["messages"]
    shown = window(earlier, options.history_tokens)
    question = [SystemMessage(_system(state, options)), *shown, message, *state["rounds"]]
    answer = await ask(model, question, tools, last=last)
    rounds = [*state["rounds"], answer]
    if calls_to_run(answer, last=last):
        return {"rounds": rounds, "iteration": state["iteration"] + 1}
    content = "".join(str(one.content) for one in rounds if isinstance(one, AIMessage))
    reply = await _stored(state, str(state["session_id"]), "assistant", content)
    counted = usage(rounds)
    final = wire.FinalMessage(id=reply.id, content=content)
    send(runtime, wire.SessionDone(wire.SessionAnswer(final, wire.Usage(**counted))))
    return {
        "messages": [message_of(reply)],
        "rounds": [],
        "total_tokens": counted["total_tokens"],
        "recalled_memories": [],
    }


def _system(state: SessionState, options: wire.SessionOptions) -> str:
    """Return the system prompt; it is made anew each time and never stored."""
    recalled = [one["text"] for one in state["recalled_memories"]]
    known = memories_paragraph("session", options.texts, recalled)
    return prompt("session_system", {"system_prompt": options.system_prompt, "memories": known})


def should_continue(state: SessionState) -> Literal["tools", "extract_memory"]:
    """Return where an answer leads: rounds that are not over wait for their tools."""
    return "tools" if state["rounds"] else "extract_memory"


async def tools(state: SessionState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Run the tools of a round, which leave no events."""
    options = _options(runtime)
    users = {"user_id": state.get("user_id") or "", "session_id": state["session_id"] or ""}
    entry, calls = find_model(options.model_id), state["rounds"][-1].additional_kwargs[CALLS]
    offered = langchain_tools(entry, enabled=options.enable_tools, **users)
    return {"rounds": [*state["rounds"], *await run_round(calls, offered)]}


async def extract_memory(state: SessionState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Remember what is new in the session; the answer is out, and no failure changes it."""
    options, user_id = _options(runtime), state.get("user_id")
    if user_id and options.extract_from:
        session_id = str(state["session_id"])
        try:
            await _extract(store_of(runtime), options, user_id, session_id)
        except (EffectFailed, StackFailed, openai.OpenAIError) as failure:
            log.warning("thread=%s taught nothing error=%s", session_id, failure)
    return {}


async def _extract(
    store: BaseStore, options: wire.SessionOptions, user_id: str, session_id: str
) -> None:
    """Ask what messages teach that were not read yet; what is as good as known is not added."""
    limit = max(HISTORY, options.extract_from)
    record = await conversations.history("session", session_id, limit)
    own = [one for one in record if one.user_id is None or one.user_id == user_id]
    if len(own) < options.extract_from:
        return
    mark = await store.aget(readings(user_id), session_id)
    read = next((n for n, one in enumerate(own, 1) if mark and mark.value["message"] == one.id), 0)
    new = window(own[read:], options.history_tokens)
    if not new:
        return
    query = extraction.memory_query([one.content for one in new if one.role == "user"])
    where = namespace(user_id)
    known = memories(await store.asearch(where, query=query, limit=extraction.KNOWN))
    model = chat_model(find_model(options.model_id), temperature=0.0)
    lines = extraction.known_lines([one.text for one in known])
    system = prompt("session_extraction", {"known": lines})
    spoken = get_buffer_string(
        [message_of(one) for one in new], human_prefix="user", ai_prefix="assistant"
    )
    answer = await ask(model, [SystemMessage(system), HumanMessage(spoken)], shown=False)
    texts = {one.text for one in known}
    for change in extraction.read_changes(str(answer.content), len(known)):
        text = (change.text or "").strip()
        if change.op == "add":
            nearest = await store.asearch(where, query=text, limit=1)
            if text in texts or any(extraction.is_known(one.score) for one in nearest):
                continue
            memory = Memory(await new_id("memory"), text, change.type, session_id)
        else:
            old = known[extraction.known_index(change)]
            if change.op == "delete":
                await store.adelete(where, old.id)
                continue
            kind = old.type if change.type == "other" else change.type
            memory = Memory(old.id, text, kind, session_id)
        texts.add(text)
        await store.aput(where, memory.id, memory.value())
    await store.aput(readings(user_id), session_id, {"message": own[-1].id}, index=False)


builder = StateGraph(SessionState, context_schema=Context, input_schema=SessionInput)
builder.add_sequence([recall_memory, process])
builder.add_node(tools)
builder.add_node(extract_memory)
builder.add_edge(START, "recall_memory")
builder.add_conditional_edges("process", should_continue)
builder.add_edge("tools", "process")
builder.add_edge("extract_memory", END)

GRAPH = builder.compile(store=CurrentStore())


_taped = wrap_graph(GRAPH, saver=lambda: current().threads)
stack = stack_of(
    _taped, wire.SessionEvent, lambda piece: wire.SessionText({"content": piece}), _thread
)
"""Runs the graph for a request, on the session's thread."""
