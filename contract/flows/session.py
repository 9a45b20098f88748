"""The session flow: its request, options and events, and the operations over its store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from contract.errors import Refused
from contract.flow import Event, FlowSpec, SessionStore, StoreEndpoint, always_recorded
from contract.flows.chat import Identifier, Share, Text
from contract.grammar import Grammar, many, maybe, one
from contract.model import Usage
from contract.stores import Turn
from contract.wire import Dialect, ErrorPaths, EventNames, TextPaths
from contract.wire.sse import data_frame

LEARNS_WITHIN = 120.0
"""Seconds after the answer in which a conversation is learnt from."""


_SESSION = "/api/v1/sessions/{session_id}"


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of `POST /api/v1/chat`; without a session, or with an unknown one, it opens one."""

    message: Text
    session_id: Identifier | None = None
    user_id: Identifier | None = None


class SessionOptions(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Options of the session flow.

    `lock_ttl` in seconds, `history_tokens` in estimated tokens. Conversations of `extract_from`
    messages and more are read for memories; 0 turns that off. They are remembered from
    `least_confidence` on; a fact without one is certain. `extraction` reads each message once and
    makes `changes`, or adds `facts` from the whole window; `near_similarity` and `same_similarity`
    are bounds for changes (docs/memory.md). An unknown session begins under the id of the request,
    or is refused.
    """

    system_prompt: str = "你是一个有用的助手。"
    model_id: str = "gpt-4.1"
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.7
    max_tokens: Annotated[int, Meta(ge=0, le=65_536)] = 0
    enable_tools: bool = True
    max_tool_iterations: Annotated[int, Meta(ge=0, le=50)] = 10
    history_limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    history_tokens: Annotated[int, Meta(ge=0)] = 8_000
    recall: Literal["always", "new_session_only"] = "always"
    recall_limit: Annotated[int, Meta(ge=0, le=20)] = 5
    extract_from: Annotated[int, Meta(ge=0)] = 4
    extraction: Literal["changes", "facts"] = always_recorded("changes")
    least_confidence: Share = 0.3
    near_similarity: Share = 0.65
    same_similarity: Share = 0.9
    unknown_session: Literal["create", "refuse"] = always_recorded("create")
    lock_ttl: Annotated[float, Meta(gt=0)] = 60.0


class SessionData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The session that was opened."""

    session_id: str


class StatusData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Status of the request."""

    status: Literal["processing"] = "processing"


class TextData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The next piece of the answer."""

    content: str


class FinalMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole answer, as it is stored."""

    id: str
    role: Literal["assistant"]
    content: str


class AnswerData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer, and the tokens of all model calls."""

    final_message: FinalMessage
    usage: Usage


class ErrorData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why there is no answer: a stable code."""

    code: str


class _Strict(msgspec.Struct, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """An event; undeclared keys are refused."""


class SessionCreated(_Strict, frozen=True, tag="session_created"):
    """A session was opened."""

    data: SessionData


class Thinking(_Strict, frozen=True, tag="thinking"):
    """The request is accepted."""

    data: StatusData = StatusData()


class SessionText(_Strict, frozen=True, tag="text"):
    """A piece of the answer."""

    data: TextData


class SessionDone(_Strict, frozen=True, tag="done"):
    """The whole answer; nothing follows."""

    data: AnswerData


class SessionError(_Strict, frozen=True, tag="error"):
    """There is no whole answer; nothing follows."""

    data: ErrorData


SessionEvent = SessionCreated | Thinking | SessionText | SessionDone | SessionError


def failed(code: str) -> SessionError:
    """Build the event that ends a stream without an answer."""
    return SessionError(ErrorData(code))


def failure(_options: SessionOptions, code: str, last: Event | None) -> tuple[Event, ...]:
    """Return the events that end a stream honestly after `last`."""
    match last:
        case SessionDone() | SessionError():
            return ()
        case None | SessionCreated():
            return (Thinking(), failed(code))
        case _:
            return (failed(code),)


class StoredMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stored message of a session."""

    id: str
    role: Literal["user", "assistant"]
    content: str
    reply_to: str | UnsetType = UNSET


def stored_messages(turns: Iterable[Turn]) -> tuple[StoredMessage, ...]:
    """Return turns as clients read them."""
    return tuple(
        StoredMessage(turn.message_id, turn.role, turn.content, turn.reply_to or UNSET)
        for turn in turns
    )


class SessionMessages(msgspec.Struct, frozen=True):
    """Every message of a session, oldest first."""

    session_id: str
    messages: tuple[StoredMessage, ...]


def lock_key(session_id: str) -> str:
    """Name the lock of a session: one turn at a time."""
    return f"session_lock:{session_id}"


def unknown_session() -> Refused:
    """Refuse a session that is not stored."""
    return Refused(404, "unknown_session", "no session with this id is known")


async def messages(sessions: SessionStore, arguments: Mapping[str, str]) -> SessionMessages:
    """List the messages of a session; raises `Refused` 404."""
    session = arguments["session_id"]
    turns = await sessions.turns(session)
    if not turns:
        raise unknown_session()
    return SessionMessages(session, stored_messages(turns))


async def delete(sessions: SessionStore, arguments: Mapping[str, str]) -> None:
    """Remove a session and all that was stored because of it; raises `Refused` 404 or 409."""
    session = arguments["session_id"]
    if not await sessions.forget(session, lock=lock_key(session)):
        raise unknown_session()


SESSION = FlowSpec(
    name="session",
    path="/api/v1/chat",
    request=SessionRequest,
    options=SessionOptions,
    events=SessionEvent,
    grammar=Grammar(
        (maybe("session_created"), one("thinking"), many("text"), one("done", "error"))
    ),
    dialect=Dialect(
        name="session",
        event=EventNames(path="type", default=""),
        text={
            "text": "data.content",
            "done": TextPaths(path="data.final_message.content", growth="cumulative"),
        },
        terminal=("done", "error"),
        errors=ErrorPaths(code="data.code"),
    ),
    failure=failure,
    encode=data_frame,
    route_keys={"session_id": "session_id", "user_id": "user_id"},
    store_endpoints=(
        StoreEndpoint("GET", f"{_SESSION}/messages", messages, SessionMessages),
        StoreEndpoint("DELETE", _SESSION, delete),
    ),
    grace_seconds=LEARNS_WITHIN,
    opens_sessions=True,
    earlier_defaults={"unknown_session": "refuse", "extraction": "facts"},
)
