"""The chat flow as a graph: rounds of model and tools between admission and clean-up."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import Annotated, Any, Literal

import msgspec
from langchain_core.messages import AIMessageChunk, SystemMessage, ToolMessage
from langgraph.channels import EphemeralValue
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Overwrite
from msgspec import UNSET
from typing_extensions import TypedDict

from cutover import Refused, Request, StackFailed, wrap_graph
from cutover.tape import moment
from effects import conversations, locks
from effects.conversations import Turn, TurnDiffers
from effects.world import new_id, read_clock
from graph_impl.flow import (
    Context,
    langchain_tools,
    options_of,
    prompt,
    replacing,
    run_round,
    send,
    streamed,
)
from graph_impl.model import REASONING_TEXT, ask, calls_to_run, chat_model, find_model
from rules.flows import chat as wire
from rules.models import CHAT_HISTORY, window
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


def _options(state: ChatState, runtime: Runtime[Context]) -> wire.ChatOptions:
    return wire.chosen(_body(state), options_of(wire.ChatOptions, runtime))


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
    turn = await (_find(body) if body.content is None else _store(body, body.content, started_at))
    send(runtime, wire.ChatAccept())
    send(runtime, wire.ChatStartReply())
    earlier = await conversations.history("chat", turn.chat_id, CHAT_HISTORY + 1)
    # A message that comes again is answered as it was asked.
    before = list(takewhile(lambda one: one.id != turn.id, earlier))
    shown = window(before, options.history_tokens, CHAT_HISTORY)
    return {
        "turn": msgspec.to_builtins(turn),
        "started_at": started_at,
        "lock_token": token,
        "messages": replacing([*shown, turn]),
        "accumulated_content": Overwrite(""),
        "iteration": Overwrite(0),
    }


async def _find(body: wire.ChatRequest) -> Turn:
    turn = await conversations.find("chat", body.message_id)
    if turn is None:
        raise Refused(404, "unknown_message", "no message with this message_id is stored")
    if turn.role == "assistant":
        raise Refused(409, "message_conflict", "this message_id belongs to a reply")
    return turn


async def _store(body: wire.ChatRequest, content: str, at: str) -> Turn:
    user = {"name": body.user_name, "user_id": body.user_id}
    where: dict[str, Any] = {"flow": "chat", "chat_id": body.chat_id or "", **user}
    turn = Turn(id=body.message_id, role="user", content=content, at=at, **where)
    try:
        await conversations.add(turn)
    except TurnDiffers as error:
        detail = "this message_id belongs to a different message"
        raise Refused(409, "message_conflict", detail) from error
    return turn


async def prompt_generation(state: ChatState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Fill in the system prompt; it is made anew for each request and never stored."""
    options = _options(state, runtime)
    now = datetime.fromisoformat(state["started_at"])
    given = moment_parameters(now, options.timezone) | (state.get("prompt_params") or {})
    return {"generated_prompt": prompt("chat_system", given)}


async def model_call(state: ChatState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Ask the model, with its tools; none may be called in the last round."""
    options = _options(state, runtime)
    entry = find_model(options.model_id)
    model = chat_model(entry, temperature=options.temperature, max_tokens=options.max_tokens)
    last = state["iteration"] >= options.max_tool_iterations
    tools = langchain_tools(entry, enabled=options.enable_tools)
    question = [SystemMessage(state["generated_prompt"]), *state["messages"]]
    answer = await ask(model, question, tools, last=last)
    return {
        "messages": [answer],
        "accumulated_content": str(answer.content),
        "finish_reason": answer.response_metadata["finish_reason"],
        "pending_tool_calls": calls_to_run(answer, last=last),
        "iteration": 1,
    }


async def tool_execution(state: ChatState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Run the tools of a round; the client sees each begin and end."""
    options, calls = _options(state, runtime), state["pending_tool_calls"]
    write = runtime.stream_writer
    for call in calls:
        write({"tool": call["name"], "status": "running"})

    def report(result: ToolMessage) -> None:
        status = "error" if result.status == "error" else "done"
        write({"tool": result.name, "status": status})

    entry, user_id = find_model(options.model_id), state["turn"]["user_id"] or ""
    tools = langchain_tools(entry, enabled=options.enable_tools, user_id=user_id)
    return {"messages": await run_round(calls, tools, report)}


def should_continue_with_tools(state: ChatState) -> Literal["tool_execution", "output_processing"]:
    """Return where an answer leads."""
    return "tool_execution" if state["pending_tool_calls"] else "output_processing"


async def output_processing(state: ChatState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Append the notice of an early end, and store the reply."""
    notice = finish_notice(state["finish_reason"], _options(state, runtime).texts)
    runtime.stream_writer({"notice": notice})
    content = state["accumulated_content"] + notice
    reply = {"id": await new_id("message"), "role": "assistant", "content": content, "name": None}
    await conversations.add(Turn(**state["turn"] | reply | {"at": state["started_at"]}))
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
        self._interval = options.yield_interval
        self._whole = wire.ChatSend("", "" if options.wire == "extended" else UNSET)
        self._shown = self._whole
        self._next_at = 0.0

    def add(self, content: str, reason: str = "") -> list[wire.ChatEvent]:
        whole = self._whole
        reasons = UNSET if whole.reason_content is UNSET else whole.reason_content + reason
        self._whole = wire.ChatSend(whole.content + content, reasons)
        begins = not self._shown.content and self._whole.content
        due = self._next_at == 0.0 or moment() >= self._next_at
        return self.unsent() if begins or due else []

    def unsent(self) -> list[wire.ChatEvent]:
        return [] if self._whole == self._shown else [self._send()]

    def tool(self, tool: str, status: Any) -> list[wire.ChatEvent]:
        return [*self.unsent(), self._send(wire.ToolFeedback(tool, status))]

    def _send(self, feedback: Any = UNSET) -> wire.ChatSend:
        self._shown, self._next_at = self._whole, moment() + self._interval
        return msgspec.structs.replace(self._whole, tool_call_feedback=feedback)


_taped = wrap_graph(GRAPH)


def stack(request: Request[wire.ChatRequest, wire.ChatOptions]) -> AsyncIterator[wire.ChatEvent]:
    """Run the graph for a request, and return the flow's events of what it streams."""
    return streamed(_taped, request, partial(_events, _Reply(request.options)))


def _events(reply: _Reply, part: Any) -> list[wire.ChatEvent]:
    """Return the events of a piece of the model's text, or of what a node writes."""
    match part:
        case AIMessageChunk():
            return reply.add(str(part.content), part.additional_kwargs.get(REASONING_TEXT, ""))
        case {"tool": tool, "status": status}:
            return reply.tool(tool, status)
        case {"notice": notice}:
            return [*reply.add(notice), *reply.unsent()]
        case dict():
            return [msgspec.convert(part, wire.ChatEvent)]
        case _:
            return []
