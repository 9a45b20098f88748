"""The body of a request, exactly as OpenAI's API words it."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from contract.model import (
    AssistantMessage,
    ImagePart,
    ImageUrl,
    ModelCall,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from effects.model.chunks import encode_call


def body(call: ModelCall) -> Any:
    """Return the decoded body."""
    return json.loads(encode_call(call, "gpt-4.1-2025"))


def test_the_least_a_call_can_say() -> None:
    """Nothing is sent that was not said, except that it streams and reports usage."""
    assert body(ModelCall(model_id="ours", messages=(UserMessage("Hi"),))) == {
        "model": "gpt-4.1-2025",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_everything_a_call_can_say() -> None:
    """Parameters of 0 are sent: they are not absent."""
    schema = {"type": "object", "properties": {"a": {"type": "number"}}}
    call = ModelCall(
        model_id="ours",
        messages=(UserMessage("Hi"),),
        temperature=0.0,
        max_tokens=10,
        tools=(ToolSpec("add", "Adds.", msgspec.Raw(json.dumps(schema).encode())),),
        tool_choice="none",
        json_object=True,
    )
    said = body(call)
    assert said["temperature"] == 0.0
    assert said["max_tokens"] == 10
    assert said["tools"] == [
        {
            "type": "function",
            "function": {"name": "add", "description": "Adds.", "parameters": schema},
        }
    ]
    assert said["tool_choice"] == "none"
    assert said["response_format"] == {"type": "json_object"}


def test_a_conversation_with_tools_keeps_its_order() -> None:
    """An assistant message of tool calls alone has content null."""
    call = ToolCall("call_1", "add", '{"a":1')
    messages = (
        SystemMessage("Be brief."),
        UserMessage("1 + 1?"),
        AssistantMessage(None, (call,)),
        ToolMessage("call_1", "2"),
        AssistantMessage("2"),
    )
    function = {"name": "add", "arguments": '{"a":1'}
    assert body(ModelCall(model_id="ours", messages=messages))["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1 + 1?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"type": "function", "id": "call_1", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "2"},
        {"role": "assistant", "content": "2"},
    ]


def test_images_are_parts() -> None:
    """Beside their text."""
    parts = (TextPart("What is it?"), ImagePart(ImageUrl("data:image/png;base64,AA==")))
    [message] = body(ModelCall(model_id="ours", messages=(UserMessage(parts),)))["messages"]
    assert message["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
    ]
