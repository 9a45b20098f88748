"""Requests for chat completions, as the simulated model reads them."""

from hashlib import blake2b
from typing import Any, Literal

import msgspec

Role = Literal["system", "user", "assistant", "tool"]


class FunctionCall(msgspec.Struct, frozen=True):
    """A tool call; `arguments` is JSON text. Without an `id`, an answer derives one."""

    name: str
    arguments: str = "{}"
    id: str = ""


class Message(msgspec.Struct, frozen=True):
    """One message; `pictures` counts images, `call_id` names the call a tool's result is for."""

    role: Role
    text: str = ""
    pictures: int = 0
    calls: tuple[FunctionCall, ...] = ()
    call_id: str = ""


class ModelRequest(msgspec.Struct, frozen=True):
    """A request for an answer; `tools` are the names a model may call, `schema` the JSON asked for.

    `digest` is a hash of the body.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[str, ...] = ()
    max_tokens: int | None = None
    stream: bool = False
    include_usage: bool = False
    schema: str = ""
    digest: str = ""

    @property
    def system(self) -> str:
        """All system messages."""
        return "\n".join(message.text for message in self.messages if message.role == "system")

    @property
    def last_user(self) -> Message:
        """The last message of the user; an empty one when there is none."""
        return next((one for one in reversed(self.messages) if one.role == "user"), Message("user"))

    @property
    def question(self) -> str:
        """The text of the last message of the user."""
        return self.last_user.text

    @property
    def turn(self) -> tuple[Message, ...]:
        """The messages after the last one of the user: calls and their results."""
        last = max((k for k, one in enumerate(self.messages) if one.role == "user"), default=-1)
        return self.messages[last + 1 :]


def read_request(raw: bytes) -> ModelRequest:
    """Return a request read from its body.

    Raises ValueError, KeyError, TypeError or AttributeError where the body is none.
    """
    body = msgspec.json.decode(raw)
    options = body.get("stream_options") or {}
    return ModelRequest(
        model=str(body["model"]),
        messages=tuple(_message(one) for one in body["messages"]),
        tools=_tools(body),
        max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        schema=_schema(body.get("response_format")),
        digest=blake2b(raw, digest_size=12).hexdigest(),
    )


def _tools(body: dict[str, Any]) -> tuple[str, ...]:
    offered = () if body.get("tool_choice") == "none" else body.get("tools") or ()
    return tuple(tool["function"]["name"] for tool in offered)


def _schema(wanted: Any) -> str:
    return msgspec.json.encode(wanted).decode() if wanted and wanted["type"] != "text" else ""


def _message(one: dict[str, Any]) -> Message:
    content, called = one.get("content"), one.get("tool_calls") or ()
    functions = [(call["function"], call.get("id") or "") for call in called]
    calls = tuple(FunctionCall(it["name"], it["arguments"], name) for it, name in functions)
    role: Role = "system" if one["role"] == "developer" else one["role"]
    return Message(role, _text(content), _pictures(content), calls, one.get("tool_call_id") or "")


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if isinstance(part.get("text"), str))


def _pictures(content: Any) -> int:
    if isinstance(content, str):
        return 0
    return sum(part.get("type") == "image_url" for part in content or ())
