"""The pipeline flow: its request, options and events."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from contract.flow import Event, FlowSpec
from contract.flows.chat import Identifier, Name, Text, check_texts
from contract.grammar import Grammar, many, one
from contract.wire import Dialect, ErrorPaths, EventNames, TextPaths
from contract.wire.sse import NamedEventEncoder

Action = Literal["continue", "warn", "compress", "end"]
Percent = Annotated[int, Meta(ge=1, le=100)]

WHOLE_RUN = "pipeline"
"""The node of a failure that ended the whole run, in none of its nodes."""
TEXT_NAMES = frozenset({"warn", "compress", "end"})
"""Fixed texts: appended to a reply, by the action."""


class Interlocutor(msgspec.Struct, frozen=True):
    """The person the model speaks as, and how they are related to the user."""

    name: Name
    relation: Name


class PipelineRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of `POST /api/chat`."""

    user_id: Identifier
    message: Text
    session_id: Identifier
    user_name: Name | None = None
    interlocutor: Interlocutor | None = None


class PipelineOptions(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Options of the pipeline flow.

    `token_limit` is how many tokens history and message may have; `warn_percent`,
    `compress_percent` and `end_percent` are shares of it at which an action begins. 0 `max_tokens`
    means the model's own limit, `lock_ttl` is in seconds. `texts` overrides the fixed texts by
    their names.
    """

    system_prompt: str = "你是一个有用的助手。"
    model_id: str = "gpt-4.1"
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.7
    max_tokens: Annotated[int, Meta(ge=0, le=65_536)] = 0
    history_limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    token_limit: Annotated[int, Meta(ge=1)] = 8_000
    warn_percent: Percent = 70
    compress_percent: Percent = 85
    end_percent: Percent = 95
    recall_limit: Annotated[int, Meta(ge=1, le=20)] = 5
    lock_ttl: Annotated[float, Meta(gt=0)] = 60.0
    texts: dict[str, str] = {}

    def __post_init__(self) -> None:
        check_texts(self.texts, TEXT_NAMES)
        if not self.warn_percent <= self.compress_percent <= self.end_percent:
            message = "warn_percent, compress_percent and end_percent must not fall"
            raise ValueError(message)


class TokenInfo(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Tokens of history and message, their limit, and what follows; `estimated` if not exact."""

    used: int
    limit: int
    action: Action
    estimated: bool = False


class NodeFailure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node that failed: its name and a stable code."""

    node: str
    code: str


class _Strict(msgspec.Struct, frozen=True, tag_field="event", forbid_unknown_fields=True):
    """An event: its data has no undeclared keys."""


class PipelineToken(_Strict, frozen=True, tag="token"):
    """The next piece of the reply."""

    content: str


class PipelineMessage(_Strict, frozen=True, kw_only=True, tag="message"):
    """The whole reply; nothing follows. `memories` are the ids of those that were found."""

    success: bool
    message: str
    token_info: TokenInfo
    end_intent: bool
    memories: tuple[str, ...]
    errors: tuple[NodeFailure, ...]


class PipelineFailed(PipelineMessage, frozen=True, kw_only=True, tag="failed"):
    """There is no whole reply: `success` is false and `message` empty. Nothing follows."""


PipelineEvent = PipelineToken | PipelineMessage | PipelineFailed


def failure(options: PipelineOptions, code: str, last: Event | None) -> tuple[Event, ...]:
    """Return the events that end a stream honestly after `last`; no tokens were counted."""
    if isinstance(last, PipelineMessage):
        return ()
    failed = PipelineFailed(
        success=False,
        message="",
        token_info=TokenInfo(0, options.token_limit, "continue"),
        end_intent=False,
        memories=(),
        errors=(NodeFailure(WHOLE_RUN, code),),
    )
    return (failed,)


PIPELINE = FlowSpec(
    name="pipeline",
    path="/api/chat",
    request=PipelineRequest,
    options=PipelineOptions,
    events=PipelineEvent,
    grammar=Grammar((many("token"), one("message", "failed"))),
    dialect=Dialect(
        name="pipeline",
        event=EventNames(path="success", names={"true": "message", "false": "failed"}),
        text={
            "token": "content",
            "message": TextPaths(path="message", growth="cumulative"),
        },
        terminal=("message", "failed"),
        errors=ErrorPaths(events=("failed",), code="errors[].code"),
    ),
    failure=failure,
    # clients tell the two ends apart by `success`
    encode=NamedEventEncoder(get_args(PipelineEvent), {PipelineFailed: "message"}).encode,
    route_keys={"session_id": "session_id", "user_id": "user_id"},
)
