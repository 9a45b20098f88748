"""The chat flow: its request, options and events."""

from __future__ import annotations

from typing import Annotated, Literal
from zoneinfo import ZoneInfo

import msgspec
from msgspec import UNSET, Meta, UnsetType

from contract.flow import Event, FlowSpec
from contract.grammar import Grammar, many, one
from contract.wire import Dialect, ErrorPaths, EventNames
from contract.wire.sse import data_frame

Identifier = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f]*\Z")]
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f]*\Z")]
# Some providers refuse a message that is blank, others answer it with anything.
Text = Annotated[str, Meta(min_length=1, max_length=65_536, pattern=r"^\s*[^\s\x00][^\x00]*\Z")]
PromptValue = Annotated[str, Meta(max_length=8_192, pattern=r"^[^\x00]*\Z")] | int | float | None
Share = Annotated[float, Meta(ge=0, le=1)]


ToolStatus = Literal["running", "done", "error"]


TEXT_NAMES = frozenset({"content_filter", "length"})
"""Fixed texts: appended to a reply that ended early, by its finish reason."""


def check_options(texts: dict[str, str], known: frozenset[str], timezone: str) -> None:
    """Raise `ValueError` for an unknown text or time zone: both stacks would fail on it later."""
    check_texts(texts, known)
    try:
        ZoneInfo(timezone)
    except (KeyError, ValueError, OSError):
        message = f"no time zone is called {timezone!r}"
        raise ValueError(message) from None


def check_texts(texts: dict[str, str], known: frozenset[str]) -> None:
    """Raise `ValueError` for a text that has no place."""
    if unknown := sorted(texts.keys() - known):
        message = f"no text is called {unknown[0]!r}; there are {sorted(known)}"
        raise ValueError(message)


class ModelOverrides(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Model settings that a request may override."""

    model_id: Identifier | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=65_536)] | None = None
    enable_tools: bool | None = None
    max_tool_iterations: Annotated[int, Meta(ge=0, le=50)] | None = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of `POST /chat/sse`."""

    message_id: Identifier
    content: Text | None = None
    user_name: Name | None = None
    chat_id: Identifier | None = None
    user_id: Identifier | None = None
    model_config: ModelOverrides | None = None
    prompt_params: dict[Identifier, PromptValue] | None = None


class ChatOptions(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Options of the chat flow.

    `yield_interval` and `lock_ttl` in seconds, `history_tokens` in estimated tokens; `texts`
    overrides the fixed texts by their name in `rules.chat.TEXTS`.
    """

    wire: Literal["strict", "extended"] = "strict"
    yield_interval: Annotated[float, Meta(ge=0, le=60)] = 0.5
    timezone: str = "UTC"
    model_id: str = "gpt-4.1"
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.7
    enable_tools: bool = True
    max_tool_iterations: Annotated[int, Meta(ge=0, le=50)] = 10
    history_limit: Annotated[int, Meta(ge=0, le=1_000)] = 20
    history_tokens: Annotated[int, Meta(ge=0)] = 8_000
    lock_ttl: Annotated[float, Meta(gt=0)] = 60.0
    texts: dict[str, str] = {}

    def __post_init__(self) -> None:
        check_options(self.texts, TEXT_NAMES, self.timezone)


class ToolFeedback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Status of a tool call."""

    tool: str
    status: ToolStatus


class _Strict(msgspec.Struct, frozen=True, tag_field="step", forbid_unknown_fields=True):
    """An event; undeclared keys are refused."""


class Accept(_Strict, frozen=True, tag="ACCEPT"):
    """The request is valid and its message is locked."""


class StartReply(_Strict, frozen=True, tag="START_REPLY"):
    """The reply begins."""


class Send(_Strict, frozen=True, tag="SEND"):
    """The reply so far: `content` and `reason_content` are cumulative over all rounds."""

    content: str
    reason_content: str | UnsetType = UNSET
    tool_call_feedback: ToolFeedback | UnsetType = UNSET


class Success(_Strict, frozen=True, tag="SUCCESS"):
    """The whole reply."""

    content: str


class Failed(_Strict, frozen=True, tag="FAILED"):
    """The reply failed; `code` only on the extended wire."""

    code: str | UnsetType = UNSET


class End(_Strict, frozen=True, tag="END"):
    """Nothing follows."""


ChatEvent = Accept | StartReply | Send | Success | Failed | End


def failed(options: ChatOptions, code: str) -> Failed:
    """Build the FAILED event; the strict wire does not carry a code."""
    return Failed(code) if options.wire == "extended" else Failed()


def failure(options: ChatOptions, code: str, last: Event | None) -> tuple[Event, ...]:
    """Return the events that end a stream honestly after `last`."""
    match last:
        case End():
            return ()
        case Success() | Failed():
            return (End(),)
        case Accept():
            return (StartReply(), failed(options, code), End())
        case None:
            return (Accept(), StartReply(), failed(options, code), End())
        case _:
            return (failed(options, code), End())


CHAT = FlowSpec(
    name="chat",
    path="/chat/sse",
    request=ChatRequest,
    options=ChatOptions,
    events=ChatEvent,
    grammar=Grammar(
        (one("ACCEPT"), one("START_REPLY"), many("SEND"), one("SUCCESS", "FAILED"), one("END")),
        growing={"SEND": "content", "SUCCESS": "content"},
    ),
    dialect=Dialect(
        name="chat",
        growth="cumulative",
        event=EventNames(path="step", default=""),
        text={"SEND": "content", "SUCCESS": "content"},
        reasoning={"SEND": "reason_content"},
        terminal=("END",),
        errors=ErrorPaths(events=("FAILED",)),
    ),
    failure=failure,
    encode=data_frame,
    route_keys={"message_id": "message_id", "session_id": "chat_id", "user_id": "user_id"},
)
