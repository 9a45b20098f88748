"""Shapes of the messages a model is sent."""

from __future__ import annotations

import msgspec
import pytest

from contract.model import (
    AssistantMessage,
    SystemMessage,
    ToolCall,
    ToolErrorCode,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from contract.stores import Turn
from rules.conversation import (
    NO_NAME,
    acceptable_messages,
    prompt_messages,
    tool_answer,
    tool_round,
)

CALL = ToolCall("call_0_0", "dice", "{}")


def test_a_conversation_is_system_history_and_current() -> None:
    """In this order; a user's text carries their name, a stored reply none."""
    first = Turn(message_id="m1", role="user", content="a")
    reply = Turn(message_id="m2", role="assistant", content="b", user_name="ann")
    named = Turn(message_id="m3", role="user", content="c", user_name="小明")
    assert prompt_messages("S", [first, reply], named) == (
        SystemMessage("S"),
        UserMessage("a"),
        AssistantMessage("b"),
        UserMessage("[小明]: c"),
    )


def test_an_assistant_that_only_called_tools_has_null_content() -> None:
    """Not an empty string: providers tell them apart."""
    assert tool_round("", (CALL,)) == AssistantMessage(None, (CALL,))
    assert tool_round("Let me see", (CALL,)).content == "Let me see"
    encoded = msgspec.json.encode(tool_round("", (CALL,)))
    assert encoded.startswith(b'{"role":"assistant","content":null,"tool_calls":[')


def test_a_tools_answer_goes_to_its_call() -> None:
    """Also an empty one."""
    assert tool_answer(CALL, ToolResult("4")) == ToolMessage("call_0_0", "4")
    assert tool_answer(CALL, ToolResult()) == ToolMessage("call_0_0", "")


@pytest.mark.parametrize("code", ["unknown_tool", "bad_arguments", "tool_failed", "tool_timeout"])
def test_a_failing_tool_answers_with_its_code(code: ToolErrorCode) -> None:
    """And with nothing else, whatever it has written before."""
    answer = tool_answer(CALL, ToolResult("secret path", error=code))
    assert answer.content == f"Error: {code}"


@pytest.mark.parametrize(
    "name", ["", "get weather", "functions.get_weather", "天气", "a" * 65, "dice\n", "<dice>"]
)
def test_a_name_no_provider_takes_back_is_replaced(name: str) -> None:
    """By one that is none of a tool's; id, arguments and the other calls stay."""
    odd = ToolCall("c", name, '{"a":1}')
    told = (UserMessage("Hi"), tool_round("Well", (CALL, odd)), ToolMessage("c", "Error"))
    assert acceptable_messages(told, {"dice"}) == (
        UserMessage("Hi"),
        AssistantMessage("Well", (CALL, ToolCall("c", NO_NAME, '{"a":1}'))),
        ToolMessage("c", "Error"),
    )


def test_a_name_that_was_offered_is_no_invention() -> None:
    """Some providers take more than others; who took the offer takes the call."""
    told = (tool_round("", (ToolCall("c", "files.read", "{}"),)),)
    assert acceptable_messages(told, {"files.read"}) is told


@pytest.mark.parametrize("content", [None, "", " \n\t"])
def test_a_reply_without_text_is_left_out(content: str | None) -> None:
    """One that called tools is a reply all the same."""
    called = AssistantMessage(content, (CALL,))
    told = (UserMessage("a"), AssistantMessage(content), called, UserMessage("b"))
    assert acceptable_messages(told, ()) == (UserMessage("a"), called, UserMessage("b"))


def test_sound_messages_stay_as_they_are() -> None:
    """What was captured of them is found again."""
    told = (SystemMessage(""), UserMessage(""), AssistantMessage("a"), tool_round(" ", (CALL,)))
    assert acceptable_messages(told, ()) is told
