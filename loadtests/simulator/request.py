"""The OpenAI chat completion request as far as the simulator reads it, its tokens, its refusals.

A token is a word of Latin letters with the space before it, up to three digits, one or two Chinese
characters, a run of white space, or any other single character. A message costs four tokens more
and the prompt three (the overhead OpenAI documents for chat models), a picture 85, an offered tool
what its JSON holds. An estimate, but one rule for prompt, stream and plain body.
"""

import re
from hashlib import blake2b
from typing import Literal, TypeVar

import msgspec

Decoded = TypeVar("Decoded")

TYPES = {401: "authentication_error", 404: "invalid_request_error", 429: "rate_limit_error"}
FIRST_SERVER_ERROR = 500


SPEAKER = re.compile(r"^\[[^\]\n]{1,64}\]: ")
ENCODER = msgspec.json.Encoder(order="deterministic")
PIECE = re.compile(r" ?[A-Za-z\u00c0-\u024f']+| ?\d{1,3}|[\u3400-\u9fff]{1,2}|\s+|\S")
PER_MESSAGE = 4
PER_PROMPT = 3
PER_PICTURE = 85


class Refusal(msgspec.Struct, frozen=True):
    """Why a request is not answered; `retry_after` in seconds becomes a header."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    retry_after: float | None = None

    @property
    def type(self) -> str:
        """OpenAI's name for this kind of error."""
        kind = "server_error" if self.status >= FIRST_SERVER_ERROR else "invalid_request_error"
        return TYPES.get(self.status, kind)

    @property
    def body(self) -> bytes:
        """The error as JSON."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Headers beside the content type."""
        if self.retry_after is None:
            return ()
        return ((b"retry-after", f"{self.retry_after:g}".encode()),)


def read_body(decoder: msgspec.json.Decoder[Decoded], body: bytes) -> Decoded | Refusal:
    """Decode a request body: 400 for what is no JSON, 422 for a wrong type."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        return Refusal(422, f"Invalid request: {error}", code="invalid_type")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Refusal(
            400, "We could not parse the JSON body of your request.", code="invalid_json"
        )


class RequestImageUrl(msgspec.Struct, frozen=True):
    """Where a picture is: a data URL, or an address that is never fetched."""

    url: str
    detail: str | None = None


class RequestText(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A piece of text in a message of several parts."""

    text: str


class RequestImage(msgspec.Struct, frozen=True, tag_field="type", tag="image_url"):
    """A picture in a message of several parts."""

    image_url: RequestImageUrl


class FunctionCall(msgspec.Struct, frozen=True):
    """The function a model called; `arguments` is JSON text."""

    name: str
    arguments: str


class RequestedCall(msgspec.Struct, frozen=True):
    """One tool call, as an assistant message carries it."""

    function: FunctionCall
    id: str = ""
    type: str = "function"


class RequestMessage(msgspec.Struct, frozen=True):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | tuple[RequestText | RequestImage, ...] | None = None
    tool_calls: tuple[RequestedCall, ...] | None = None
    tool_call_id: str | None = None
    name: str | None = None

    @property
    def text(self) -> str:
        """The text of all parts, joined by line ends."""
        if isinstance(self.content, tuple):
            return "\n".join(part.text for part in self.content if isinstance(part, RequestText))
        return self.content or ""

    @property
    def pictures(self) -> tuple[str, ...]:
        """The addresses of the pictures in this message."""
        if not isinstance(self.content, tuple):
            return ()
        return tuple(part.image_url.url for part in self.content if isinstance(part, RequestImage))


class ToolFunction(msgspec.Struct, frozen=True):
    """The function behind an offered tool."""

    name: str
    description: str | None = None
    parameters: dict[str, object] | None = None


class RequestTool(msgspec.Struct, frozen=True):
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
    messages: tuple[RequestMessage, ...] = ()
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: tuple[RequestTool, ...] | None = None
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
    def turn(self) -> tuple[RequestMessage, ...]:
        """What came after the last user message: the tool rounds so far."""
        return self.messages[self.last_user + 1 :]


DECODER = msgspec.json.Decoder(ChatCompletionRequest)


def decode(body: bytes) -> ChatCompletionRequest | Refusal:
    """Read a request body: 400 for broken JSON or a missing field, 422 for a wrong type."""
    request = read_body(DECODER, body)
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


class TokenUsage(msgspec.Struct, frozen=True):
    """Tokens of one call; reasoning is part of the completion."""

    prompt: int
    completion: int
    reasoning: int

    def encode(self) -> bytes:
        """The usage object as JSON."""
        return msgspec.json.encode(
            {
                "prompt_tokens": self.prompt,
                "completion_tokens": self.completion,
                "total_tokens": self.prompt + self.completion,
                "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
                "completion_tokens_details": {
                    "reasoning_tokens": self.reasoning,
                    "audio_tokens": 0,
                },
            }
        )


def pieces(text: str) -> list[str]:
    """Cut a text into tokens; joined again they are the text."""
    return PIECE.findall(text)


def count(text: str) -> int:
    """Tokens of a text."""
    return len(PIECE.findall(text))


def prompt_tokens(request: ChatCompletionRequest) -> int:
    """Tokens of everything a request sends to the model."""
    tools = sum(count(msgspec.json.encode(tool).decode()) for tool in request.tools or ())
    return PER_PROMPT + tools + sum(map(_message_tokens, request.messages))


def _message_tokens(message: RequestMessage) -> int:
    calls = sum(
        count(call.function.name) + count(call.function.arguments)
        for call in message.tool_calls or ()
    )
    return PER_MESSAGE + count(message.text) + calls + PER_PICTURE * len(message.pictures)
