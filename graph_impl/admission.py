"""Admitting a chat request: model, lock, message; and what was said before it."""

from __future__ import annotations

from contract.flow import Request
from contract.flows.chat import ChatOptions, ChatRequest
from contract.ports import Effects
from contract.stores import Turn
from graph_impl.rounds import check_model
from rules import chat as rules
from rules.conversation import window

ChatAsked = Request[ChatRequest, ChatOptions]


async def admit(request: ChatAsked, model: rules.ChatModel, effects: Effects) -> Turn:
    """Check model, lock and message; raises `Refused`."""
    await check_model(effects, model.model_id, model.max_tokens)
    key = rules.lock_key(request.body.message_id)
    if not await effects.locks.acquire("message", key, request.options.lock_ttl):
        raise rules.message_locked()
    if request.body.content is None:
        return await _stored(request.body.message_id, effects)
    turn = rules.sent(request.body, request.body.content)
    if not await effects.conversations.put("message", turn):
        raise rules.message_conflict()
    return turn


async def _stored(message_id: str, effects: Effects) -> Turn:
    found = await effects.conversations.find("message", message_id)
    if found is None:
        raise rules.unknown_message()
    return found


async def earlier(turn: Turn, options: ChatOptions, effects: Effects) -> tuple[Turn, ...]:
    """Read the earlier turns of the same chat, within the token budget."""
    if turn.chat_id is None or not options.history_limit:
        return ()
    turns = await effects.conversations.history(
        "history", turn.chat_id, before=turn.message_id, limit=options.history_limit
    )
    return window(turns, options.history_tokens)
