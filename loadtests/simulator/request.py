"""Requests to a model, read from three APIs into one form."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Literal

import msgspec

Api = Literal["chat", "responses", "messages"]
Role = Literal["system", "user", "assistant", "tool"]

_PICTURES = frozenset({"image_url", "input_image", "image"})


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

    `include_usage` is true where the API reports usage unasked.
    """

    api: Api
    model: str
    messages: tuple[Message, ...]
    tools: tuple[str, ...] = ()
    max_tokens: int | None = None
    stream: bool = False
    include_usage: bool = True
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


def read_request(api: Api, raw: bytes) -> ModelRequest:
    """Return a request read from its body.

    Raises ValueError, KeyError, TypeError or AttributeError where the body is none.
    """
    body = msgspec.json.decode(raw)
    options = body.get("stream_options") or {}
    return ModelRequest(
        api=api,
        model=str(body["model"]),
        messages=tuple(_READERS[api](body)),
        tools=_tools(body),
        max_tokens=next((body[key] for key in _LIMITS if body.get(key)), None),
        stream=bool(body.get("stream")),
        include_usage=api != "chat" or bool(options.get("include_usage")),
        schema=_schema(body.get("response_format") or (body.get("text") or {}).get("format")),
        digest=blake2b(raw, digest_size=12).hexdigest(),
    )


_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


def _tools(body: dict[str, Any]) -> tuple[str, ...]:
    if body.get("tool_choice") in ("none", {"type": "none"}):
        return ()
    named = (tool.get("function", tool).get("name") for tool in body.get("tools") or ())
    return tuple(name for name in named if name)


def _schema(wanted: Any) -> str:
    return msgspec.json.encode(wanted).decode() if wanted and wanted["type"] != "text" else ""


def _chat(body: dict[str, Any]) -> Iterator[Message]:
    for one in body["messages"]:
        content, called = one.get("content"), one.get("tool_calls") or ()
        functions = [(call["function"], call.get("id") or "") for call in called]
        calls = tuple(FunctionCall(it["name"], it["arguments"], name) for it, name in functions)
        result_of = one.get("tool_call_id") or ""
        yield Message(_role(one), _text(content), _pictures(content), calls, result_of)


def _responses(body: dict[str, Any]) -> Iterator[Message]:
    yield Message("system", body.get("instructions") or "")
    given = body["input"]
    for one in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        match one.get("type", "message"):
            case "function_call":
                call = FunctionCall(one["name"], one["arguments"], one["call_id"])
                yield Message("assistant", calls=(call,))
            case "function_call_output":
                yield Message("tool", _text(one["output"]), call_id=one["call_id"])
            case "message":
                yield Message(_role(one), _text(one["content"]), _pictures(one["content"]))
            case _:  # reasoning, searches: nothing to answer to
                pass


def _messages(body: dict[str, Any]) -> Iterator[Message]:
    yield Message("system", _text(body.get("system")))
    for one in body["messages"]:
        content = one["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            if block["type"] == "tool_result":
                yield Message("tool", _text(block.get("content")), call_id=block["tool_use_id"])
        calls = tuple(
            FunctionCall(it["name"], msgspec.json.encode(it["input"]).decode(), it["id"])
            for it in blocks
            if it["type"] == "tool_use"
        )
        message = Message(one["role"], _text(blocks), _pictures(blocks), calls)
        if message.text or message.pictures or calls:
            yield message


_READERS = {"chat": _chat, "responses": _responses, "messages": _messages}


def _role(message: dict[str, Any]) -> Role:
    role: Role = "system" if message["role"] == "developer" else message["role"]
    return role


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if isinstance(part.get("text"), str))


def _pictures(content: Any) -> int:
    if isinstance(content, str):
        return 0
    return sum(part.get("type") in _PICTURES for part in content or ())
