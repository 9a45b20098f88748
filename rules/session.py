"""The session flow: checks, prompts, model calls and turns of both stacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from contract.flow import Request
from contract.flows.session import (
    SESSION,
    AnswerData,
    FinalMessage,
    SessionDone,
    SessionOptions,
    SessionRequest,
    unknown_session,
)
from contract.model import ModelCall, SystemMessage, Usage, UserMessage
from contract.ports import Effects
from contract.stores import Reading, Recall, Turn
from rules.conversation import (
    Layout,
    check_model,
    lock_session,
    prompt_messages,
    read_text,
    user_turn,
    window,
)
from rules.extraction import lessons as extraction
from rules.memories import confident_facts, remember
from rules.prompts import Render

SessionTurnRequest = Request[SessionRequest, SessionOptions]
"""The request of one turn."""

SESSION_PROMPT: Final = "{system_prompt}{memories}"
"""Stands in for a missing prompt file; in `str.format` syntax."""
EXTRACTION_PROMPT: Final = (
    "从下面的对话中提取关于用户、值得长期记住的事实（身份、偏好、计划、关系）。\n"
    '只输出 JSON：{"facts": ["…"]}；没有就输出 {"facts": []}。不要输出对话里没有的内容。'
)
"""Asks for facts; no template: its braces are meant."""


def session_of(request: SessionTurnRequest) -> str:
    """Name the session of a request: its own, or the one that begins."""
    return request.body.session_id or request.session


async def admit(
    request: SessionTurnRequest, effects: Effects
) -> tuple[Turn, tuple[Turn, ...], bool]:
    """Check model, lock and session, and store the turn; raises `Refused`.

    Returns the turn, those before it, and whether its session is to be announced as new.
    """
    options, session = request.options, session_of(request)
    await check_model(effects, options.model_id, options.max_tokens)
    await lock_session(effects, session, options.lock_ttl)
    turn = await user_turn(effects, session, request.body.message, request.body.user_id)
    earlier = await effects.conversations.history(
        "history", session, before=turn.message_id, limit=options.history_limit
    )
    begins = request.body.session_id is None
    if not (begins or earlier) and options.unknown_session == "refuse":
        raise unknown_session()
    await effects.conversations.put("message", turn)
    return turn, earlier, begins or not earlier


def recall(request: SessionTurnRequest, *, new: bool) -> Recall | None:
    """Build the query for memories; None where there is nothing to look for."""
    body, options = request.body, request.options
    if body.user_id is None or not options.recall_limit:
        return None
    if options.recall == "new_session_only" and not new:
        return None
    return Recall(
        user_id=body.user_id,
        query=body.message,
        limit=options.recall_limit,
        except_session=session_of(request),
    )


async def lay_out(
    request: SessionTurnRequest,
    effects: Effects,
    turns: Sequence[Turn],
    memories: str,
    render: Render,
) -> Layout:
    """Lay out the conversation, the newest of its turns last; list the tools to offer."""
    options, (*earlier, turn) = request.options, turns
    system = render({"system_prompt": options.system_prompt, "memories": memories})
    messages = prompt_messages(system, window(earlier, options.history_tokens), turn)
    return messages, await effects.tools.list("offer") if options.enable_tools else ()


def done(stored: Turn, usage: Usage) -> SessionDone:
    """Build the terminal event of a stored answer."""
    return SessionDone(
        AnswerData(FinalMessage(stored.message_id, "assistant", stored.content), usage)
    )


async def learn(
    request: SessionTurnRequest, effects: Effects, turns: Sequence[Turn], reply: Turn
) -> None:
    """Learn from a conversation that ends in a reply.

    Nothing is learnt of a session that was deleted meanwhile.
    """
    user, options = request.body.user_id, request.options
    if options.extraction == "facts":
        await _add_facts(request, effects, turns, reply)
    elif user is not None:
        reading = Reading(user_id=user, flow=SESSION.name, session_id=session_of(request))
        await extraction.learn(
            effects, extraction.Lesson(reading, user, tuple(turns), reply), options
        )


async def _add_facts(
    request: SessionTurnRequest, effects: Effects, turns: Sequence[Turn], reply: Turn
) -> None:
    """Draw facts from the whole window, and add those whose text is new."""
    call, user = facts_call(request, (*turns, reply)), request.body.user_id
    if call is None or user is None:
        return
    text = await read_text(effects, "extract", call)
    found = confident_facts(text, request.options.least_confidence)
    if found and await effects.conversations.find("learn", reply.message_id):
        await remember(effects, "learn", found, user, session_of(request))


def facts_call(request: SessionTurnRequest, turns: Sequence[Turn]) -> ModelCall | None:
    """Build the call that adds facts; None in a short conversation or without a user.

    It holds as many turns as a reply would, and none of another user: their facts would be
    remembered of this one.
    """
    options, user = request.options, request.body.user_id
    own = [turn for turn in turns if turn.user_id in {None, user}]
    if not options.extract_from or len(own) < options.extract_from:
        return None
    recent = window(own, options.history_tokens)
    if user is None or not recent:
        return None
    spoken = "\n".join(f"{turn.role}: {turn.content}" for turn in recent)
    return ModelCall(
        model_id=options.model_id,
        messages=(SystemMessage(EXTRACTION_PROMPT), UserMessage(spoken)),
        temperature=0.0,
        json_object=True,
    )
