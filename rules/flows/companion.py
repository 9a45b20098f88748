"""The companion flow: emotion, streamed text, tools, pictures, and questions to the user."""

import binascii
import re
from typing import Final, Literal

import msgspec

from cutover.flow import Operation, Pausing
from cutover.flow_spec import FlowSpec, Grammar, Text, many, maybe, one
from rules.flows.fields import (
    ErrorEvent,
    FlowOptions,
    Identifier,
    MessageText,
    NamedEvent,
    Share,
    Tokens,
)
from rules.forms import Form, FormValue, HumanAnswer

Feeling = Literal["neutral", "joy", "affection", "sadness", "anger", "fear", "surprise", "disgust"]

LARGEST_IMAGE: Final = 8 << 20
"""Bytes of a decoded image."""
LARGEST_IMAGE_BODY: Final = 12 << 20
"""Bytes of a request with an image: base64 takes a third more."""

QUESTION: Final = "question"
"""Kind of a question that the model asks."""
MEMORY: Final = "memory_confirm"
"""Kind of the question which facts in a picture to remember."""
READING_TEMPERATURE: Final = 0.0
"""Temperature of the calls that read a picture and find facts in its text."""

_HEAD: Final = re.compile(r"data:image/(png|jpeg|webp);base64,")
_MAGIC: Final = {"png": rb"\x89PNG\r\n\x1a\n", "jpeg": rb"\xff\xd8\xff", "webp": rb"RIFF....WEBP"}


class CompanionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /chat`."""

    session_id: Identifier
    message: MessageText
    user_id: Identifier | None = None


class ImageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /chat/image`: a PNG, JPEG or WebP file as a data URL."""

    session_id: Identifier
    image: str
    action: Literal["analyze_only", "analyze_for_memory"]
    user_id: Identifier | None = None

    def __post_init__(self) -> None:
        check_image(self.image)


def check_image(url: str) -> None:
    """Raise `ValueError` where a data URL holds no image of an allowed type and size."""
    head = _HEAD.match(url)
    if head is None:
        message = "image must be a data URL of type image/png, image/jpeg or image/webp, in base64"
        raise ValueError(message)
    try:
        data = binascii.a2b_base64(url[head.end() :], strict_mode=True)
    except ValueError:
        data = b""
    if len(data) > LARGEST_IMAGE:
        message = f"image must have at most {LARGEST_IMAGE >> 20} MiB"
        raise ValueError(message)
    if not re.match(_MAGIC[head[1]], data, re.DOTALL):
        message = f"image is no valid base64, or no file of type image/{head[1]}"
        raise ValueError(message)


def memory_owner(user_id: str | None, session_id: str) -> str:
    """Return whose memories a request is about: its user's, without one its session's alone."""
    return user_id or f"session:{session_id}"


class RespondRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /hitl/respond`."""

    hitl_id: Identifier
    action: Literal["approve", "edit", "reject"]
    data: dict[str, FormValue] | None = None


class ContinueRequest(msgspec.Struct, frozen=True):
    """Body of `POST /hitl/continue`."""

    hitl_id: Identifier


def human_answer(body: RespondRequest) -> HumanAnswer:
    """Return the answer in a request; data beside a rejection is dropped."""
    return HumanAnswer(body.action, {} if body.action == "reject" else body.data or {})


class CompanionOptions(FlowOptions, frozen=True, kw_only=True):
    """Options of the companion flow; facts in pictures are proposed from `least_confidence` on."""

    flow = "companion"
    vision_model_id: str = "gpt-4.1"
    enable_tools: bool = True
    history_tokens: Tokens = 8_000
    least_confidence: Share = 0.3
    timezone: str = "UTC"


class CompanionEmotion(NamedEvent, frozen=True, tag="emotion"):
    """The user's mood, as their message shows it."""

    primary: Feeling
    intensity: Share
    confidence: Share


class CompanionText(NamedEvent, frozen=True, tag="text"):
    """The next piece of the answer."""

    content: str


class CompanionToolResult(NamedEvent, frozen=True, tag="tool_result"):
    """Output of a tool, as the model reads it."""

    tool: str
    ok: bool
    content: str


class CompanionHitl(NamedEvent, frozen=True, tag="hitl"):
    """A question to the user; the exchange waits for the answer."""

    hitl_id: str
    session_id: str
    kind: str
    form: Form


class CompanionDone(NamedEvent, frozen=True, tag="done"):
    """Nothing follows."""

    status: Literal["completed", "suspended", "failed"]


CompanionEvent = (
    CompanionEmotion
    | CompanionText
    | CompanionToolResult
    | CompanionHitl
    | ErrorEvent
    | CompanionDone
)


COMPANION = FlowSpec(
    name="companion",
    requests={"/chat": CompanionRequest, "/chat/image": ImageRequest},
    options=CompanionOptions,
    events=CompanionEvent,
    grammar=Grammar(
        (maybe("emotion"), many("text", "tool_result", "hitl"), maybe("error"), one("done"))
    ),
    texts={"text": {"content": Text()}},
    pieces=frozenset({"text"}),
    failing=lambda _options, code: (ErrorEvent(code), CompanionDone("failed")),
    route_keys={"session_id": "session_id", "user_id": "user_id"},
    named=True,
    pausing=Pausing(
        questions=frozenset({"hitl"}),
        suspended=lambda _options: (CompanionDone("suspended"),),
        resume="/hitl/continue",
        resume_request=ContinueRequest,
        question_of=lambda body: body.hitl_id,
    ),
    operations=(Operation("POST", "/hitl/respond", "companion.respond", RespondRequest),),
    body_limits={"/chat/image": LARGEST_IMAGE_BODY},
)
"""The flow as router and comparison see it."""
