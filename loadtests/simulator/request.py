"""What a client asks for: the OpenAI chat completion request, as far as the simulator reads it."""

import re
from hashlib import blake2b
from typing import Literal

import msgspec

from loadtests.simulator.refusal import Refusal, read

SPEAKER = re.compile(r"^\[[^\]\n]{1,64}\]: ")
ENCODER = msgspec.json.Encoder(order="deterministic")


class ImageUrl(msgspec.Struct, frozen=True):
    """Where a picture is: a data URL, or an address that is never fetched."""

    url: str
    detail: str | None = None


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A piece of text in a message of several parts."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag_field="type", tag="image_url"):
    """A picture in a message of several parts."""

    image_url: ImageUrl


class FunctionCall(msgspec.Struct, frozen=True):
    """The function a model called; `arguments` is JSON text."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """One tool call, as an assistant message carries it."""

    function: FunctionCall
    id: str = ""
    type: str = "function"


class Message(msgspec.Struct, frozen=True):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | tuple[TextPart | ImagePart, ...] | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    tool_call_id: str | None = None
    name: str | None = None

    @property
    def text(self) -> str:
        """The text of all parts, joined by line ends."""
        if isinstance(self.content, tuple):
            return "\n".join(part.text for part in self.content if isinstance(part, TextPart))
        return self.content or ""

    @property
    def pictures(self) -> tuple[str, ...]:
        """The addresses of the pictures in this message."""
        if not isinstance(self.content, tuple):
            return ()
        return tuple(part.image_url.url for part in self.content if isinstance(part, ImagePart))


class ToolFunction(msgspec.Struct, frozen=True):
    """The function behind an offered tool."""

    name: str
    description: str | None = None
    parameters: dict[str, object] | None = None


class Tool(msgspec.Struct, frozen=True):
    """One tool on offer."""

    function: ToolFunction
    type: str = "function"


class StreamOptions(msgspec.Struct, frozen=True):
    """How to stream."""

    include_usage: bool = False


class ResponseFormat(msgspec.Struct, frozen=True):
    """What shape the answer's text must have."""

    type: str = "text"


class ChatCompletionRequest(msgspec.Struct, frozen=True):
    """The body of `POST /v1/chat/completions`; fields not listed are read past."""

    model: str = ""
    messages: tuple[Message, ...] = ()
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: tuple[Tool, ...] | None = None
    tool_choice: str | dict[str, object] | None = None
    response_format: ResponseFormat | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None

    @property
    def model_name(self) -> str:
        """The model's name without overrides."""
        return self.model.partition("?")[0]

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def offered(self) -> tuple[str, ...]:
        """The names of the tools that may be called; none with `tool_choice: "none"`."""
        if self.tool_choice == "none":
            return ()
        return tuple(tool.function.name for tool in self.tools or ())

    @property
    def question(self) -> str:
        """The last user message without its `[name]: ` prefix; empty when there is none."""
        position = self.last_user
        return "" if position < 0 else SPEAKER.sub("", self.messages[position].text, count=1)

    @property
    def last_user(self) -> int:
        """Position of the last user message; -1 when there is none."""
        for position in range(len(self.messages) - 1, -1, -1):
            if self.messages[position].role == "user":
                return position
        return -1

    @property
    def turn(self) -> tuple[Message, ...]:
        """What came after the last user message: the tool rounds so far."""
        return self.messages[self.last_user + 1 :]


DECODER = msgspec.json.Decoder(ChatCompletionRequest)


def decode(body: bytes) -> ChatCompletionRequest | Refusal:
    """Read a request body: 400 for broken JSON or a missing field, 422 for a wrong type."""
    request = read(DECODER, body)
    if isinstance(request, Refusal):
        return request
    for field in ("model", "messages"):
        if not getattr(request, field):
            return Refusal(
                400,
                f"Missing required parameter: {field!r}.",
                code="missing_required_parameter",
                param=field,
            )
    return request


def digest_of(request: ChatCompletionRequest) -> bytes:
    """Digest of what decides the answer's text, 16 bytes.

    Left out: how it is delivered (streaming, the model name's overrides) and how much of it
    (token limits), so that a cut, a short and a whole answer are beginnings of one text.
    """
    deciding = (
        request.model_name,
        request.messages,
        request.tools or (),
        request.tool_choice,
        request.response_format,
        request.temperature,
        request.top_p,
        request.seed,
    )
    return blake2b(ENCODER.encode(deciding), digest_size=16).digest()
