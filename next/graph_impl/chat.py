"""The chat flow as a graph: rounds of model and tools between admission and clean-up."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.channels import EphemeralValue
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.runtime import Runtime
from langgraph.types import Overwrite
from msgspec import UNSET
from typing_extensions import TypedDict

from cutover import Refused, Request, StackFailed, wrap_graph
from cutover.tape import moment
from effects import conversations, locks
from effects.conversations import Turn, TurnDiffers
from effects.models import ModelEntry
from effects.world import current, new_id, read_clock
from graph_impl.flow import Context, langchain_tools, options_of, prompt, run_round, send, streamed
from graph_impl.model import CALLS, REASONING_TEXT, ask, chat_model, find_model
from rules.flows import chat as wire
from rules.models import CHAT_HISTORY, runs_tools, window
from rules.prompts import finish_notice, moment_parameters


class ChatInput(TypedDict, total=False):
    """The body of a request; `content` is of this turn alone, one without it asks again."""

    message_id: str
    content: Annotated[str | None, EphemeralValue]
    user_name: str | None
    chat_id: str | None
    user_id: str | None
    model_config: dict[str, Any] | None
    prompt_params: dict[str, Any] | None


class ChatState(ChatInput, MessagesState, total=False):
    """The state: `messages` are the history, the message, and what the rounds add."""

    turn: dict[str, Any]
    started_at: str
    lock_token: str
    generated_prompt: str
    accumulated_content: Annotated[str, operator.add]
    finish_reason: str
    pending_tool_calls: list[dict[str, str]]
    iteration: Annotated[int, operator.add]


FRESH: Final[dict[str, Any]] = {
    "messages": [RemoveMessage(REMOVE_ALL_MESSAGES)],
    "accumulated_content": Overwrite(""),
    "iteration": Overwrite(0),
}
"""What every turn begins with, also on a thread that a saver has kept."""


def _options(state: ChatState, runtime: Runtime[Context]) -> wire.ChatOptions:
    return wire.chosen(_body(state), options_of(runtime, wire.ChatOptions))


def _body(state: ChatState) -> wire.ChatRequest:
    fields = {name: state.get(name) for name in wire.ChatRequest.__struct_fields__}
    return msgspec.convert(fields, wire.ChatRequest)


def _lock(state: ChatState) -> str:
    return f"msg_lock:{state['message_id']}"


async def initialize(state: ChatState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Check the request, lock the message, store or find it, and read the conversation."""
    options, body = _options(state, runtime), _body(state)
    try:
        find_model(options.model_id)
    except StackFailed as error:
        if (body.model_config or wire.ModelConfig()).model_id is not None:
            raise Refused(422, "unknown_model", "no such model is configured") from error
        raise
    token = await locks.acquire(_lock(state), wire.LOCK_SECONDS)
    if token is None:
        raise Refused(409, "message_locked", "this message is being answered already")
    started_at = await read_clock()
    turn = await (_find(body) if body.content is None else _store(body, started_at))
    send(runtime, wire.ChatAccept())
    send(runtime, wire.ChatStartReply())
    earlier = await conversations.history("chat", turn.chat_id, CHAT_HISTORY + 1)
    before = _until(earlier, turn.id)
    shown = window(before, options.history_tokens, CHAT_HISTORY)
    return {
        **FRESH,
        "turn": msgspec.to_builtins(turn),
        "started_at": started_at,
        "lock_token": token,
        "messages": [*FRESH["messages"], *map(_message, shown), _message(turn)],
    }


def _until(turns: list[Turn], turn_id: str) -> list[Turn]:
    """Return the turns before one: asked again, a message is answered as it was asked."""
    places = [place for place, one in enumerate(turns) if one.id == turn_id]
    return turns[: places[0]] if places else turns


async def _find(body: wire.ChatRequest) -> Turn:
    turn = await conversations.find("chat", body.message_id)
    if turn is None:
        raise Refused(404, "unknown_message", "no message with this message_id is stored")
    if turn.role == "assistant":
        raise Refused(409, "message_conflict", "this message_id belongs to a reply")
    return turn


async def _store(body: wire.ChatRequest, at: str) -> Turn:
    turn = Turn(
        id=body.message_id,
        flow="chat",
        chat_id=body.chat_id or "",
        role="user",
        content=body.content or "",
        name=body.user_name,
        user_id=body.user_id,
        at=at,
    )
    try:
        await conversations.add(turn)
    except TurnDiffers as error:
        detail = "this message_id belongs to a different message"
        raise Refused(409, "message_conflict", detail) from error
    return turn


def _message(turn: Turn) -> AnyMessage:
    if turn.role == "assistant":
        return AIMessage(turn.content)
    return HumanMessage(f"[{turn.name}]: {turn.content}" if turn.name else turn.content)


async def prompt_generation(state: ChatState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Fill in the system prompt; it is made anew for each request and never stored."""
    options = _options(state, runtime)
    now = datetime.fromisoformat(state["started_at"])
    given = moment_parameters(now, options.timezone) | (state.get("prompt_params") or {})
    name = str(given.get("user_name") or "").strip()
    user_line = f"\n和你说话的人叫 {name}。" if name else ""
    return {"generated_prompt": prompt("chat_system", {**given, "user_line": user_line})}


async def model_call(state: ChatState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Ask the model, with its tools; none may be called in the last round."""
    options = _options(state, runtime)
    entry = find_model(options.model_id)
    model = chat_model(entry, temperature=options.temperature, max_tokens=options.max_tokens)
    asked, last = model, state["iteration"] >= options.max_tool_iterations
    if tools := langchain_tools(_names(options, entry)):
        asked = model.bind_tools(tools, tool_choice="none" if last else "auto")  # type: ignore[assignment]
    question = [SystemMessage(state["generated_prompt"]), *state["messages"]]
    answer = await ask(asked, question)
    finish, calls = answer.response_metadata["finish_reason"], answer.additional_kwargs[CALLS]
    wanted = not last and runs_tools(finish, len(calls))
    return {
        "messages": [answer],
        "accumulated_content": str(answer.content),
        "finish_reason": finish,
        "pending_tool_calls": calls if wanted else [],
        "iteration": 1,
    }


def _names(options: wire.ChatOptions, entry: ModelEntry) -> tuple[str, ...]:
    return current().tools.names if options.enable_tools and entry.tools else ()


async def tool_execution(state: ChatState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Run the tools of a round; the client sees each begin and end."""
    options = _options(state, runtime)
    names = _names(options, find_model(options.model_id))
    answer, write = state["messages"][-1], runtime.stream_writer
    for call in state["pending_tool_calls"]:
        write({"tool": call["name"], "status": "running"})

    def report(result: ToolMessage) -> None:
        status = "error" if result.status == "error" else "done"
        write({"tool": result.name, "status": status})

    tools = langchain_tools(names, user_id=state["turn"]["user_id"] or "")
    return {"messages": await run_round(answer, tools, report)}


def should_continue_with_tools(
    state: ChatState,
) -> Literal["tool_execution", "output_processing"]:
    """Return where an answer leads."""
    return "tool_execution" if state["pending_tool_calls"] else "output_processing"


async def output_processing(state: ChatState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Append the notice of an early end, and store the reply."""
    notice = finish_notice(state["finish_reason"], _options(state, runtime).texts)
    runtime.stream_writer({"notice": notice})
    turn, content = state["turn"], state["accumulated_content"] + notice
    reply = Turn(
        id=await new_id("message"),
        flow="chat",
        chat_id=turn["chat_id"],
        role="assistant",
        content=content,
        user_id=turn["user_id"],
        at=state["started_at"],
    )
    await conversations.add(reply)
    send(runtime, wire.ChatSuccess(content))
    return {"accumulated_content": notice}


async def cleanup(state: ChatState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Release the lock."""
    await locks.release(_lock(state), state["lock_token"])
    send(runtime, wire.ChatEnd())
    return {}


builder = StateGraph(ChatState, context_schema=Context, input_schema=ChatInput)
builder.add_sequence([initialize, prompt_generation, model_call])
builder.add_node(tool_execution)
builder.add_sequence([output_processing, cleanup])
builder.add_edge(START, "initialize")
builder.add_conditional_edges("model_call", should_continue_with_tools)
builder.add_edge("tool_execution", "model_call")
builder.add_edge("cleanup", END)

GRAPH = builder.compile()


class _Reply:
    """Makes cumulative SEND events of what the graph streams, `yield_interval` apart."""

    def __init__(self, options: wire.ChatOptions) -> None:
        self._options = options
        self._said = {"content": "", "reason": ""}
        self._shown = dict(self._said)
        self._next_at = 0.0

    def say(self, content: str, reason: str = "") -> list[wire.ChatEvent]:
        self._said["content"] += content
        if self._options.wire == "extended":
            self._said["reason"] += reason
        begins = not self._shown["content"] and self._said["content"]
        due = self._next_at == 0.0 or moment() >= self._next_at
        return self.unsent() if begins or due else []

    def unsent(self) -> list[wire.ChatEvent]:
        return [] if self._said == self._shown else [self._send()]

    def tool(self, tool: str, status: Any) -> list[wire.ChatEvent]:
        return [*self.unsent(), self._send(wire.ToolFeedback(tool, status))]

    def _send(self, feedback: Any = UNSET) -> wire.ChatSend:
        self._shown = dict(self._said)
        self._next_at = moment() + self._options.yield_interval
        reason = self._said["reason"] if self._options.wire == "extended" else UNSET
        return wire.ChatSend(self._said["content"], reason, feedback)


_taped = wrap_graph(GRAPH)


def stack(request: Request[wire.ChatRequest, wire.ChatOptions]) -> AsyncIterator[wire.ChatEvent]:
    """Run the graph for a request, and return the flow's events of what it streams."""
    reply = _Reply(request.options)
    return streamed(_taped, request, ("messages", "custom"), partial(_events, reply))


def _events(reply: _Reply, part: Any) -> list[wire.ChatEvent]:
    """Return the events of a piece of the model's text, or of what a node writes."""
    match part:
        case AIMessageChunk():
            reason = part.additional_kwargs.get(REASONING_TEXT, "")
            return reply.say(str(part.content), reason)
        case {"tool": tool, "status": status}:
            return reply.tool(tool, status)
        case {"notice": notice}:
            return [*reply.say(notice), *reply.unsent()]
        case dict():
            return [msgspec.convert(part, wire.ChatEvent)]
        case _:
            return []
