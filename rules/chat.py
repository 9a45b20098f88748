"""The chat flow: settings, texts, locks, turns and admission of both stacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from contract.errors import Refused
from contract.flow import Request
from contract.flows.chat import ChatOptions, ChatRequest, ToolFeedback
from contract.model import ToolCall, ToolResult
from contract.ports import Effects
from contract.stores import Turn
from rules.conversation import Layout, check_model, parameters, prompt_messages, window
from rules.prompts import Render

DEFAULT_SYSTEM_PROMPT: Final = (
    "你是一个AI助手，当前时间是 {current_time}，当前日期是 {current_date}。\n"
    "请根据以下对话历史回答用户问题。"
)
"""Stands in for a missing prompt file; in `str.format` syntax."""
TEXTS: Mapping[str, str] = {
    "content_filter": "赤尾有点不想讨论这个话题呢~",
    "length": "(后续内容被截断)",
}
"""Notices behind a reply that ended early, by its finish reason."""


class ChatModel(msgspec.Struct, frozen=True, kw_only=True):
    """The model settings of one request, defaults filled in."""

    model_id: str
    temperature: float
    max_tokens: int | None
    enable_tools: bool
    max_tool_iterations: int


def settings(body: ChatRequest, options: ChatOptions) -> ChatModel:
    """Fill what the request leaves open from the deployment's options."""
    defaults = ChatModel(
        model_id=options.model_id,
        temperature=options.temperature,
        max_tokens=None,
        enable_tools=options.enable_tools,
        max_tool_iterations=options.max_tool_iterations,
    )
    overrides = msgspec.structs.asdict(body.model_config) if body.model_config else {}
    chosen = {name: value for name, value in overrides.items() if value is not None}
    return msgspec.structs.replace(defaults, **chosen)


def lock_key(message_id: str) -> str:
    """Name the lock of a message."""
    return f"msg_lock:{message_id}"


async def lay_out(
    request: Request[ChatRequest, ChatOptions],
    model: ChatModel,
    effects: Effects,
    turn: Turn,
    render: Render,
) -> Layout:
    """Lay out the conversation: system prompt, earlier turns, the user's message; list tools.

    The earlier turns are those of the same chat, within the token budget.
    """
    options, now = request.options, await effects.clock.now("prompt")
    system = render(parameters(now, options.timezone, request.body.prompt_params))
    earlier: tuple[Turn, ...] = ()
    if turn.chat_id is not None and options.history_limit:
        earlier = await effects.conversations.history(
            "history", turn.chat_id, before=turn.message_id, limit=options.history_limit
        )
    messages = prompt_messages(system, window(earlier, options.history_tokens), turn)
    return messages, await effects.tools.list("offer") if model.enable_tools else ()


async def admit(
    request: Request[ChatRequest, ChatOptions], model: ChatModel, effects: Effects
) -> Turn:
    """Check the model, take the lock and store or find the message; raises `Refused`."""
    body, conversations = request.body, effects.conversations
    await check_model(effects, model.model_id, model.max_tokens)
    key = lock_key(body.message_id)
    if not await effects.locks.acquire("message", key, request.options.lock_ttl):
        raise Refused(409, "message_locked", "this message is being answered already")
    if body.content is None:
        found = await conversations.find("message", body.message_id)
        if found is None:
            raise Refused(404, "unknown_message", "no message with this message_id is stored")
        if found.role != "user":
            raise Refused(409, "message_conflict", "this message_id belongs to a reply")
        return found
    turn = Turn(
        message_id=body.message_id,
        role="user",
        content=body.content,
        chat_id=body.chat_id,
        user_id=body.user_id,
        user_name=body.user_name,
    )
    if not await conversations.put("message", turn):
        detail = "this message_id belongs to a different message"
        raise Refused(409, "message_conflict", detail)
    return turn


def tool_feedback(call: ToolCall, result: ToolResult | None = None) -> ToolFeedback:
    """Build the status of a tool call; it is running while it has no result."""
    if result is None:
        return ToolFeedback(call.name, "running")
    return ToolFeedback(call.name, "done" if result.ok else "error")


def ending_notice(finish: str, overrides: Mapping[str, str]) -> str:
    """Return the notice for a reply that ended early; "" for any other finish reason."""
    return overrides.get(finish, TEXTS[finish]) if finish in TEXTS else ""
