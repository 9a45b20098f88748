"""The session flow: sessions that open, thinking, deltas, and what is stored of a session."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from cutover.flow import Operation
from cutover.flow_spec import FlowSpec, Grammar, Text, many, maybe, one
from rules.flows.fields import FlowOptions, Identifier, MessageText, Tokens

SYSTEM_PROMPT = "你是一个有用的助手。"
"""What begins the system prompt where none is configured."""


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /api/v1/chat`; without a session, or with an unknown one, it opens one."""

    message: MessageText
    session_id: Identifier | None = None
    user_id: Identifier | None = None


class SessionOptions(FlowOptions, frozen=True, kw_only=True):
    """Options of the session flow.

    Conversations of `extract_from` messages and more are read for memories; 0 turns that off.
    """

    flow = "session"
    system_prompt: str = SYSTEM_PROMPT
    enable_tools: bool = True
    history_tokens: Tokens = 8_000
    recall: Literal["always", "new_session_only"] = "always"
    extract_from: Annotated[int, Meta(ge=0)] = 4
    unknown_session: Literal["create", "refuse"] = "create"


class Usage(msgspec.Struct, frozen=True):
    """Tokens, summed over the model calls of an exchange."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class FinalMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer, as it is stored."""

    id: str
    role: Literal["assistant"] = "assistant"
    content: str


class SessionAnswer(msgspec.Struct, frozen=True):
    """The answer, and the tokens it took."""

    final_message: FinalMessage
    usage: Usage


class _Event(msgspec.Struct, frozen=True, tag_field="type"):
    pass


class SessionCreated(_Event, frozen=True, tag="session_created"):
    """A session was opened."""

    data: dict[Literal["session_id"], str]


class SessionThinking(_Event, frozen=True, tag="thinking"):
    """The request is accepted."""

    data: dict[Literal["status"], str] = msgspec.field(
        default_factory=lambda: {"status": "processing"}
    )


class SessionText(_Event, frozen=True, tag="text"):
    """A piece of the answer."""

    data: dict[Literal["content"], str]


class SessionDone(_Event, frozen=True, tag="done"):
    """The whole answer; nothing follows."""

    data: SessionAnswer


class SessionError(_Event, frozen=True, tag="error"):
    """There is no whole answer, for a stable code; nothing follows."""

    data: dict[Literal["code"], str]


SessionEvent = SessionCreated | SessionThinking | SessionText | SessionDone | SessionError


class StoredMessage(msgspec.Struct, frozen=True):
    """A stored message of a session."""

    id: str
    role: Literal["user", "assistant"]
    content: str


class SessionMessages(msgspec.Struct, frozen=True):
    """Every message of a session, oldest first."""

    session_id: str
    messages: tuple[StoredMessage, ...]


_ONE_SESSION = "/api/v1/sessions/{session_id}"

SESSION = FlowSpec(
    name="session",
    requests={"/api/v1/chat": SessionRequest},
    options=SessionOptions,
    events=SessionEvent,
    grammar=Grammar(
        (maybe("session_created"), one("thinking"), many("text"), one("done", "error"))
    ),
    texts={
        "text": {"data.content": Text()},
        "done": {"data.final_message.content": Text(growth="total")},
    },
    pieces=frozenset({"text"}),
    failing=lambda _options, code: (SessionThinking(), SessionError({"code": code})),
    route_keys={"session_id": "session_id", "user_id": "user_id"},
    operations=(
        Operation("GET", f"{_ONE_SESSION}/messages", "session.messages"),
        Operation("DELETE", _ONE_SESSION, "session.delete"),
    ),
)
"""The flow as router and comparison see it."""
