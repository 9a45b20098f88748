"""What both stacks hold a chat request to."""

from __future__ import annotations

from contract.flows.chat import ChatOptions, ChatRequest, ModelOverrides
from contract.stores import Turn
from rules import chat, conversation

OPTIONS = ChatOptions()


def asked(settings: ModelOverrides | None) -> chat.ChatModel:
    """Fill a request's settings in."""
    return chat.settings(ChatRequest(message_id="m", model_config=settings), OPTIONS)


def test_the_defaults_are_the_documented_ones() -> None:
    """gpt-4.1, 0.7, tools on, ten rounds."""
    expected = chat.ChatModel(
        model_id="gpt-4.1",
        temperature=0.7,
        max_tokens=None,
        enable_tools=True,
        max_tool_iterations=10,
    )
    assert asked(None) == asked(ModelOverrides()) == expected


def test_what_a_request_sets_wins_zero_and_false_included() -> None:
    """Falsy is not absent."""
    settings = ModelOverrides(
        model_id="m", temperature=0.0, max_tokens=5, enable_tools=False, max_tool_iterations=0
    )
    assert asked(settings) == chat.ChatModel(
        model_id="m", temperature=0.0, max_tokens=5, enable_tools=False, max_tool_iterations=0
    )


def test_the_lock_is_named_after_the_message() -> None:
    """The name is shared by a fleet."""
    assert chat.lock_key("m-1") == "msg_lock:m-1"


def test_the_turn_a_request_brings_and_the_reply_it_leaves() -> None:
    """The reply belongs to the same chat and user and points at what it answers."""
    body = ChatRequest(message_id="m", chat_id="c", user_id="u", user_name="ann")
    turn = chat.sent(body, "Hi")
    assert turn == Turn(
        message_id="m", role="user", content="Hi", chat_id="c", user_id="u", user_name="ann"
    )
    assert conversation.reply_turn("r", turn, "Hello") == Turn(
        message_id="r",
        role="assistant",
        content="Hello",
        chat_id="c",
        user_id="u",
        reply_to="m",
    )
