"""The companion flow: its requests, options and events, and how its pauses are answered."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_args

import msgspec
from msgspec import Meta

from contract.flow import (
    AnswerEndpoint,
    ContinueEndpoint,
    Event,
    FlowSpec,
    Pausing,
    always_recorded,
)
from contract.flows.chat import Identifier, Share, Text, check_options
from contract.flows.session import LEARNS_WITHIN
from contract.grammar import Grammar, many, maybe, one
from contract.human import Form, FormValue, HumanAnswer
from contract.wire import Dialect
from contract.wire.sse import NamedEventEncoder

Feeling = Literal["neutral", "joy", "affection", "sadness", "anger", "fear", "surprise", "disgust"]
Status = Literal["completed", "suspended", "failed"]

MOST_OF_AN_IMAGE = 8 << 20
"""Bytes of an image, decoded."""
MOST_WITH_AN_IMAGE = 12 << 20
"""Bytes of a request with an image: base64 takes a third more, and there is some JSON around."""


TEXT_NAMES = frozenset(
    {"picture", "no_text", "nothing_found", "confirm_title", "confirm_label"}
    | {"remembered", "not_remembered"}
)
"""Names of the fixed texts of `rules.companion`."""


class MessageTurn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of `POST /chat`."""

    session_id: Identifier
    message: Text
    user_id: Identifier | None = None


class ImageTurn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of `POST /chat/image`: the image as a data URL; models are shown it by reference."""

    by_reference: ClassVar[tuple[str, ...]] = ("image",)

    session_id: Identifier
    image: str
    action: Literal["analyze_only", "analyze_for_memory"]
    user_id: Identifier | None = None


class RespondRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of `POST /hitl/respond`."""

    hitl_id: Identifier
    action: Literal["approve", "edit", "reject"]
    data: dict[str, FormValue] | None = None


class ContinueRequest(msgspec.Struct, frozen=True):
    """Body of `POST /hitl/continue`."""

    hitl_id: Identifier


class CompanionOptions(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Options of the companion flow.

    `lock_ttl` in seconds, `history_tokens` in estimated tokens; 0 `max_tokens` means the model's
    own limit. Facts read in a picture are proposed as memories from `least_confidence` on.
    Conversations of `extract_from` messages and more are read for memories as those of `session`
    are; 0 turns that off. The `summary` is that of the working memory. `texts` overrides the fixed
    texts by their names.
    """

    model_id: str = "gpt-4.1"
    vision_model_id: str = "gpt-4.1"
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.7
    max_tokens: Annotated[int, Meta(ge=0, le=65_536)] = 0
    enable_tools: bool = True
    ask_human: bool = True
    max_tool_iterations: Annotated[int, Meta(ge=0, le=50)] = 10
    history_limit: Annotated[int, Meta(ge=0, le=1_000)] = 100
    history_tokens: Annotated[int, Meta(ge=0)] = 8_000
    recall_limit: Annotated[int, Meta(ge=0, le=20)] = 5
    least_confidence: Share = 0.3
    extract_from: Annotated[int, Meta(ge=0)] = 0
    near_similarity: Share = 0.65
    same_similarity: Share = 0.9
    summary: Literal["full", "brief"] = always_recorded("full")
    timezone: str = "UTC"
    lock_ttl: Annotated[float, Meta(gt=0)] = 60.0
    texts: dict[str, str] = {}

    def __post_init__(self) -> None:
        check_options(self.texts, TEXT_NAMES, self.timezone)


class _Strict(msgspec.Struct, frozen=True, tag_field="event", forbid_unknown_fields=True):
    """An event: its tag is the frame's `event:`, the rest its data, without other keys."""


class Emotion(_Strict, frozen=True, tag="emotion"):
    """The user's mood, by their message."""

    primary: Feeling
    intensity: Share
    confidence: Share


class CompanionText(_Strict, frozen=True, tag="text"):
    """The next piece of the answer."""

    content: str


class ToolOutput(_Strict, frozen=True, tag="tool_result"):
    """Output of a tool."""

    tool: str
    ok: bool
    content: str


class Hitl(_Strict, frozen=True, tag="hitl"):
    """A question to the user; the exchange waits for the answer."""

    hitl_id: str
    session_id: str
    kind: str
    form: Form


class CompanionError(_Strict, frozen=True, tag="error"):
    """Why the answer is not whole: a stable code."""

    code: str


class CompanionDone(_Strict, frozen=True, tag="done"):
    """Nothing follows."""

    status: Status


CompanionEvent = Emotion | CompanionText | ToolOutput | Hitl | CompanionError | CompanionDone


def failed(code: str) -> tuple[CompanionError, CompanionDone]:
    """Build the events that end a stream without a whole answer."""
    return (CompanionError(code), CompanionDone("failed"))


def failure(_options: CompanionOptions, code: str, last: Event | None) -> tuple[Event, ...]:
    """Return the events that end a stream honestly after `last`."""
    match last:
        case CompanionDone():
            return ()
        case CompanionError():
            return (CompanionDone("failed"),)
        case _:
            return failed(code)


def suspended(_options: CompanionOptions, last: Event | None) -> tuple[Event, ...]:
    """Return the events that end a stream which waits for the user."""
    return () if isinstance(last, CompanionDone) else (CompanionDone("suspended"),)


def _answer(body: RespondRequest) -> HumanAnswer:
    """Read an answer; data beside a rejection is dropped."""
    return HumanAnswer(body.action, {} if body.action == "reject" else body.data or {})


def _hitl_id(body: RespondRequest | ContinueRequest) -> str:
    return body.hitl_id


COMPANION = FlowSpec(
    name="companion",
    path="/chat",
    request=MessageTurn,
    options=CompanionOptions,
    events=CompanionEvent,
    grammar=Grammar(
        (maybe("emotion"), many("text", "tool_result", "hitl"), maybe("error"), one("done")),
        questions=frozenset({"hitl"}),
    ),
    dialect=Dialect(name="companion", text={"text": "content"}, terminal=("done",)),
    failure=failure,
    encode=NamedEventEncoder(get_args(CompanionEvent)).encode,
    route_keys={"session_id": "session_id", "user_id": "user_id"},
    extra_requests={"/chat/image": ImageTurn},
    body_limits={"/chat/image": MOST_WITH_AN_IMAGE},
    pausing=Pausing(
        respond=AnswerEndpoint("/hitl/respond", RespondRequest, _hitl_id, _answer),
        resume=ContinueEndpoint("/hitl/continue", ContinueRequest, _hitl_id),
        suspended=suspended,
    ),
    grace_seconds=LEARNS_WITHIN,
    earlier_defaults={"summary": "brief"},
)
