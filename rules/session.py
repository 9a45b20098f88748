"""What both stacks hold a session's turn to, and the shapes of what they ask and store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from contract.flow import Request
from contract.flows.session import (
    AnswerData,
    FinalMessage,
    SessionDone,
    SessionOptions,
    SessionRequest,
    unknown_session,
)
from contract.model import ModelCall, SystemMessage, Usage, UserMessage
from contract.stores import MemoryEntry, Recall, Turn
from rules.conversation import window
from rules.memories import as_list

SessionAsked = Request[SessionRequest, SessionOptions]
"""What a flow is asked for a turn."""

MEMORIES_HEADING: Final = "\n\n相关记忆：\n"
EXTRACTION_PROMPT: Final = (
    "从下面的对话中提取关于用户、值得长期记住的事实（身份、偏好、计划、关系）。\n"
    '只输出 JSON：{"facts": ["…"]}；没有就输出 {"facts": []}。不要输出对话里没有的内容。'
)
"""Asks for facts; braces and all, no template."""


def is_new(asked: SessionAsked) -> bool:
    """Whether the request names no session, so that one begins."""
    return asked.body.session_id is None


def session_of(asked: SessionAsked) -> str:
    """Name the session of a request: its own, or the one that begins."""
    return asked.body.session_id or asked.session


def check_known(asked: SessionAsked, history: Sequence[Turn]) -> bool:
    """Say whether a session is to be announced as new; raises `Refused` 404."""
    if is_new(asked) or history:
        return is_new(asked)
    if asked.options.unknown_session == "refuse":
        raise unknown_session()
    return True


def sent(asked: SessionAsked, message_id: str) -> Turn:
    """Build the turn a request brings."""
    return Turn(
        message_id=message_id,
        role="user",
        content=asked.body.message,
        chat_id=session_of(asked),
        user_id=asked.body.user_id,
    )


def recall(asked: SessionAsked, *, new: bool) -> Recall | None:
    """Say what is looked for in memory; None where nothing is."""
    body, options = asked.body, asked.options
    if body.user_id is None or not options.recall_limit:
        return None
    if options.recall == "new_session_only" and not new:
        return None
    return Recall(
        user_id=body.user_id,
        query=body.message,
        limit=options.recall_limit,
        except_session=session_of(asked),
    )


def told(memories: Iterable[MemoryEntry]) -> str:
    """Tell memories as they stand at the end of the system prompt; "" without any."""
    listed = as_list(memories)
    return MEMORIES_HEADING + listed if listed else ""


def done(kept: Turn, usage: Usage) -> SessionDone:
    """Build the terminal event of an answer that is kept."""
    return SessionDone(AnswerData(FinalMessage(kept.message_id, "assistant", kept.content), usage))


def extraction(asked: SessionAsked, turns: Sequence[Turn]) -> ModelCall | None:
    """Build the question for facts; None where the conversation is too short, or nobody's.

    The model is told as much of it as it is in a turn, and nothing another user said or was told:
    what is learnt of them would be remembered of this one.
    """
    options, user = asked.options, asked.body.user_id
    own = [turn for turn in turns if turn.user_id in {None, user}]
    if not options.extract_from or len(own) < options.extract_from:
        return None
    recent = window(own, options.history_tokens)
    if user is None or not recent:
        return None
    said = "\n".join(f"{turn.role}: {turn.content}" for turn in recent)
    return ModelCall(
        model_id=options.model_id,
        messages=(SystemMessage(EXTRACTION_PROMPT), UserMessage(said)),
        temperature=0.0,
        json_object=True,
    )
