"""Models and tools: calls, messages, streamed chunks, tool calls and their results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar, Final, Literal

import msgspec

ToolErrorCode = Literal[
    "unknown_tool", "bad_arguments", "tool_failed", "tool_timeout", "outcome_unknown"
]


_SCHEME = "request:"
_DIGEST = "#sha256="


class NoArguments(msgspec.Struct, frozen=True):
    """Arguments of an operation that takes none."""


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as it is offered to a model; `parameters` is its JSON schema, already encoded."""

    name: str
    description: str
    parameters: msgspec.Raw


class OfferedTools(msgspec.Struct, frozen=True):
    """Result of `tools.list`."""

    tools: tuple[ToolSpec, ...]


class ToolCall(msgspec.Struct, frozen=True):
    """A call that the model requested; `arguments` is the text it wrote, valid JSON or not."""

    id: str
    name: str
    arguments: str


class ToolResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tool answered: text, or an error code. `at` as in `Chunk`."""

    content: str = ""
    error: ToolErrorCode | None = None
    at: int = 0

    @property
    def ok(self) -> bool:
        """Whether the tool answered with a result."""
        return self.error is None


class TextPart(msgspec.Struct, frozen=True, tag="text", tag_field="type"):
    """Text inside a message of several parts."""

    text: str


class ImageUrl(msgspec.Struct, frozen=True):
    """Where an image is: a data URL or an address."""

    url: str


class ImagePart(msgspec.Struct, frozen=True, tag="image_url", tag_field="type"):
    """An image inside a message of several parts."""

    image_url: ImageUrl


class SystemMessage(msgspec.Struct, frozen=True, tag="system", tag_field="role"):
    """The system prompt."""

    content: str


class UserMessage(msgspec.Struct, frozen=True, tag="user", tag_field="role"):
    """A message of the user: text, or text and images."""

    content: str | tuple[TextPart | ImagePart, ...]


class AssistantMessage(
    msgspec.Struct, frozen=True, tag="assistant", tag_field="role", omit_defaults=True
):
    """A message of the model; `content` is None when it only called tools."""

    content: str | None
    tool_calls: tuple[ToolCall, ...] = ()


class ToolMessage(msgspec.Struct, frozen=True, tag="tool", tag_field="role"):
    """A tool's answer to one call."""

    tool_call_id: str
    content: str


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage


class ModelCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Arguments of `model.stream`: everything that is sent to the provider, and nothing secret."""

    model_id: str
    messages: tuple[Message, ...]
    temperature: float | None = None
    max_tokens: int | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: Literal["auto", "none", "required"] | None = None
    json_object: bool = False
    whole: ClassVar[bool] = False


class WholeModelCall(ModelCall, frozen=True, kw_only=True, omit_defaults=True):
    """A call whose caller uses no part of the answer before the whole; on the tape it is equal."""

    whole: ClassVar[bool] = True


def as_whole(call: ModelCall) -> WholeModelCall:
    """Return the same call by a caller that waits for the whole answer."""
    return WholeModelCall(**msgspec.structs.asdict(call))


GATEWAY_SITE: Final = "gateway"
"""The site of every model call that a remote stack makes through the gateway."""


class PassedCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Arguments of `model.stream` as a client wrote them: a chat completion that is passed on.

    `more` are all other fields of the request, known or unknown. Both may be `msgspec.Raw`, JSON
    that is passed on undecoded.
    """

    model_id: str
    messages: Any
    more: dict[str, Any] = {}
    whole: ClassVar[bool] = False


class WholePassedCall(PassedCall, frozen=True, kw_only=True, omit_defaults=True):
    """A passed call whose client gets the answer in one piece; on the tape it is equal."""

    whole: ClassVar[bool] = True


def passed_on(call: ModelCall) -> PassedCall:
    """Return a call as a client of the provider writes it: a chat completion."""
    more: dict[str, Any] = {}
    if call.temperature is not None:
        more["temperature"] = call.temperature
    if call.max_tokens is not None:
        more["max_tokens"] = call.max_tokens
    if call.tools:
        more["tools"] = [{"type": "function", "function": tool} for tool in call.tools]
    if call.tool_choice is not None:
        more["tool_choice"] = call.tool_choice
    if call.json_object:
        more["response_format"] = {"type": "json_object"}
    messages = list(map(_message, call.messages))
    return PassedCall(model_id=call.model_id, messages=messages, more=more)


def _message(message: Message) -> object:
    """Return a message as providers have it: ours encode so, but for an assistant's calls."""
    if not isinstance(message, AssistantMessage) or not message.tool_calls:
        return message
    calls = [
        {
            "type": "function",
            "id": call.id,
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in message.tool_calls
    ]
    return {"role": "assistant", "content": message.content, "tool_calls": calls}


class SentCall(PassedCall, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """A passed call that its client can send itself; on the tape it is the plain call.

    Where it is made, it is made so, and not by the model port.
    """

    @classmethod
    def made(cls, call: PassedCall, send: Callable[[], AsyncIterator[Chunk]]) -> SentCall:
        """Make one of a call; `send` yields the chunks of the answer."""
        sent = cls(model_id=call.model_id, messages=call.messages, more=call.more)
        sent.__dict__["send"] = send
        return sent

    def chunks(self) -> AsyncIterator[Chunk]:
        """Send it."""
        send: Callable[[], AsyncIterator[Chunk]] = self.__dict__["send"]
        return send()


class LookUp(msgspec.Struct, frozen=True):
    """Arguments of `model.lookup`."""

    model_id: str


class ModelInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a stack may know of a registered model; limits in tokens."""

    model_id: str
    model: str
    context_tokens: int = 128_000
    max_output_tokens: int = 16_384


class CountTokens(msgspec.Struct, frozen=True):
    """Arguments of `model.count`: texts as they stand in messages to a model."""

    model_id: str
    texts: tuple[str, ...]


class TokenCounts(msgspec.Struct, frozen=True):
    """Result of `model.count`: tokens of each text; None where no exact count can be had."""

    tokens: tuple[int, ...] | None


class Usage(msgspec.Struct, frozen=True):
    """Token counts as providers report them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Sum two calls' usage."""
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.total_tokens + other.total_tokens,
        )


class ToolCallDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of a tool call; `id` and `name` usually come with the first piece of an index."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class Chunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """One decoded piece of a model's stream.

    `at` is its arrival in microseconds since the exchange began, set when it is recorded; every
    timed decision uses it. `finish` is the provider's finish reason, `model` the model's own name,
    `by` the id of the fallback from which on it answers, where that is not the requested model.

    `field` is the provider's name of what the chunk holds, where text came as other than `content`
    (a `refusal`), or reasoning as other than `reasoning_content`. `other` holds
    everything else (audio, parts), as the provider wrote it; only calls that are passed on have it.
    """

    at: int = 0
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()
    finish: str = ""
    usage: Usage | None = None
    model: str = ""
    by: str = ""
    field: str = ""
    other: dict[str, Any] = {}


class RawChunk(Chunk, frozen=True, omit_defaults=True):
    """A chunk with the data of the events it came in, for clients that get those unchanged.

    Events that carry nothing stand with the next chunk that does. `body` is the answer's, where it
    came in one piece. They are not recorded.
    """

    raw: tuple[bytes, ...] = ()
    body: bytes = b""

    def plain(self) -> Chunk:
        """Return the chunk without the events it came in."""
        return Chunk(**{name: getattr(self, name) for name in Chunk.__struct_fields__})


def reference(field: str, digest: str) -> str:
    """Return a reference to the content of a request's field, with its SHA-256 in hex."""
    return f"{_SCHEME}{field}{_DIGEST}{digest}"


def field_of(url: str) -> str | None:
    """Return the field of the request a reference names; None where it is no reference."""
    if not url.startswith(_SCHEME):
        return None
    field, found, _ = url.removeprefix(_SCHEME).partition(_DIGEST)
    return field if found else None
