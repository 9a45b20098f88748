"""A model call as the bytes an OpenAI-compatible provider expects."""

from __future__ import annotations

from typing import Final, Literal, assert_never

import msgspec

from contract.model import (
    AssistantMessage,
    Message,
    ModelCall,
    PassedCall,
    SystemMessage,
    ToolMessage,
    ToolSpec,
    UserMessage,
)


class _Function(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class _Call(msgspec.Struct, frozen=True, tag="function", tag_field="type"):
    id: str
    function: _Function


class _Calling(msgspec.Struct, frozen=True, tag="assistant", tag_field="role"):
    content: str | None
    tool_calls: list[_Call]


class _Tool(msgspec.Struct, frozen=True, tag="function", tag_field="type"):
    function: ToolSpec


class _StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool


class _Format(msgspec.Struct, frozen=True):
    type: Literal["json_object"]


class _Body(msgspec.Struct, frozen=True, omit_defaults=True):
    model: str
    messages: list[Message | _Calling]
    stream: bool
    stream_options: _StreamOptions
    temperature: float | None = None
    max_tokens: int | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | None = None
    response_format: _Format | None = None


_ENCODER: Final = msgspec.json.Encoder()
_WITH_USAGE: Final = _StreamOptions(include_usage=True)
_JSON_OBJECT: Final = _Format("json_object")


def encode(call: ModelCall | PassedCall, model: str) -> bytes:
    """Encode the body of a streamed chat completion; `model` is the provider's name for it."""
    if isinstance(call, PassedCall):
        return _passed(call, model)
    body = _Body(
        model=model,
        messages=[_message(message) for message in call.messages],
        stream=True,
        stream_options=_WITH_USAGE,
        temperature=call.temperature,
        max_tokens=call.max_tokens,
        tools=[_Tool(tool) for tool in call.tools] or None,
        tool_choice=call.tool_choice,
        response_format=_JSON_OBJECT if call.json_object else None,
    )
    return _ENCODER.encode(body)


def _passed(call: PassedCall, model: str) -> bytes:
    options = call.more.get("stream_options") or {}
    if isinstance(options, msgspec.Raw):
        options = msgspec.json.decode(options)
    body = {
        "model": model,
        "messages": call.messages,
        **call.more,
        "stream": True,
        "stream_options": {**options, "include_usage": True},
    }
    return _ENCODER.encode(body)


def _message(message: Message) -> Message | _Calling:
    match message:
        case AssistantMessage(content, calls) if calls:
            functions = [_Call(call.id, _Function(call.name, call.arguments)) for call in calls]
            return _Calling(content, functions)
        case SystemMessage() | UserMessage() | AssistantMessage() | ToolMessage():
            return message
        case _:
            assert_never(message)
