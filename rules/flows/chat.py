"""The chat flow: cumulative SEND frames, throttled, with feedback about tools."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cutover.flow import Event
from cutover.flow_spec import FlowSpec, Grammar, Text, many, one
from rules.flows.fields import (
    FlowOptions,
    Identifier,
    MessageText,
    Name,
    PromptParams,
    Temperature,
    Tokens,
)

Iterations = Annotated[int, Meta(ge=0, le=50)]
MaxTokens = Annotated[int, Meta(ge=1, le=65_536)]

LOCK_SECONDS = 60.0
"""How long a message is locked while it is answered."""


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a request may choose about the model; what it leaves out, the options decide."""

    model_id: Identifier | None = None
    temperature: Temperature | None = None
    max_tokens: MaxTokens | None = None
    enable_tools: bool | None = None
    max_tool_iterations: Iterations | None = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /chat/sse`; without `content` the message is looked up by its id."""

    message_id: Identifier
    content: MessageText | None = None
    user_name: Name | None = None
    chat_id: Identifier | None = None
    user_id: Identifier | None = None
    model_config: ModelConfig | None = None
    prompt_params: PromptParams | None = None


class ChatOptions(FlowOptions, frozen=True, kw_only=True):
    """Options of the chat flow; `yield_interval` in seconds, `history_tokens` as estimated.

    Without `max_tokens` the model's own limit holds.
    """

    flow = "chat"
    max_tokens: MaxTokens | None = None
    enable_tools: bool = True
    max_tool_iterations: Iterations = 10
    yield_interval: Annotated[float, Meta(ge=0, le=60)] = 0.5
    history_tokens: Tokens = 8_000
    timezone: str = "UTC"
    wire: Literal["strict", "extended"] = "strict"


def chosen(body: ChatRequest, options: ChatOptions) -> ChatOptions:
    """Return the options as one request sets them."""
    given = msgspec.structs.asdict(body.model_config or ModelConfig())
    return msgspec.structs.replace(
        options, **{name: value for name, value in given.items() if value is not None}
    )


class ToolFeedback(msgspec.Struct, frozen=True):
    """Status of a tool call."""

    tool: str
    status: Literal["running", "done", "error"]


class _Event(msgspec.Struct, frozen=True, tag_field="step"):
    pass


class ChatAccept(_Event, frozen=True, tag="ACCEPT"):
    """Request, lookup and lock are good."""


class ChatStartReply(_Event, frozen=True, tag="START_REPLY"):
    """The reply begins."""


class ChatSend(_Event, frozen=True, tag="SEND"):
    """The reply so far: `content` and `reason_content` are cumulative over all rounds.

    `reason_content` is for the extended wire alone.
    """

    content: str
    reason_content: str | UnsetType = UNSET
    tool_call_feedback: ToolFeedback | UnsetType = UNSET


class ChatSuccess(_Event, frozen=True, tag="SUCCESS"):
    """The whole reply."""

    content: str


class ChatFailed(_Event, frozen=True, tag="FAILED"):
    """The reply failed; `code` is for the extended wire alone."""

    code: str | UnsetType = UNSET


class ChatEnd(_Event, frozen=True, tag="END"):
    """Nothing follows."""


ChatEvent = ChatAccept | ChatStartReply | ChatSend | ChatSuccess | ChatFailed | ChatEnd


def _failing(options: ChatOptions, code: str) -> tuple[Event, ...]:
    failed = ChatFailed(code if options.wire == "extended" else UNSET)
    return ChatAccept(), ChatStartReply(), failed, ChatEnd()


CHAT = FlowSpec(
    name="chat",
    requests={"/chat/sse": ChatRequest},
    options=ChatOptions,
    events=ChatEvent,
    grammar=Grammar(
        (one("ACCEPT"), one("START_REPLY"), many("SEND"), one("SUCCESS", "FAILED"), one("END"))
    ),
    texts={
        "SEND": {
            "content": Text(growth="total"),
            "reason_content": Text("reasoning", growth="total"),
        },
        "SUCCESS": {"content": Text(growth="total")},
    },
    pieces=frozenset({"SEND"}),
    failing=_failing,
    route_keys={"message_id": "message_id", "chat_id": "chat_id", "user_id": "user_id"},
)
"""The flow as router and comparison see it."""
