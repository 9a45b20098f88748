"""Requests: which are refused, what decides the digest, how tokens are counted."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.simulator.request import (
    ChatCompletionRequest,
    Refusal,
    count,
    decode,
    digest_of,
    pieces,
    prompt_tokens,
)
from tests.loadtests.simulator.asking import asked


def changed(fields: dict[str, object]) -> ChatCompletionRequest:
    """Say hello with other fields."""
    return msgspec.convert(msgspec.to_builtins(asked("Hello")) | fields, ChatCompletionRequest)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"\xff", 400),
        (b'{"model":"sim-chat"}', 400),
        (b'{"model":"sim-chat","messages":[]}', 400),
        (b'{"messages":[{"role":"user","content":"hi"}]}', 400),
        (b'{"model":"sim-chat","messages":"hi"}', 422),
        (b'{"model":"sim-chat","messages":[{"role":"king"}]}', 422),
        (b"[]", 422),
    ],
)
def test_bad_bodies_are_refused(body: bytes, status: int) -> None:
    """Broken and incomplete is 400, a wrong type 422."""
    refusal = decode(body)
    assert isinstance(refusal, Refusal)
    assert refusal.status == status


def test_unknown_fields_are_read_past() -> None:
    """Clients send more than the simulator knows."""
    body = b'{"model":"m","messages":[{"role":"user","content":"x","extra":1}],"user":"ann"}'
    assert isinstance(decode(body), ChatCompletionRequest)


@pytest.mark.parametrize(
    "delivery",
    [
        {"stream": False},
        {"stream_options": {"include_usage": True}},
        {"max_tokens": 5},
        {"model": "sim-chat?rate=10&ending=cut"},
    ],
)
def test_delivery_does_not_decide_the_text(delivery: dict[str, object]) -> None:
    """Cut, short and whole answers are beginnings of one text."""
    assert digest_of(changed(delivery)) == digest_of(asked("Hello"))


@pytest.mark.parametrize(
    "change", [{"model": "gpt-4.1"}, {"temperature": 0.1}, {"seed": 7}, {"tool_choice": "none"}]
)
def test_everything_else_does(change: dict[str, object]) -> None:
    """Another model, parameter or word gets another answer."""
    assert digest_of(changed(change)) != digest_of(asked("Hello"))
    assert digest_of(asked("Hello!")) != digest_of(asked("Hello"))


def test_the_question_is_the_last_user_message_without_its_name() -> None:
    """The prefix of the chat flow is not part of what is asked."""
    assert asked("Hello").question == "Hello"
    assert asked("", messages=[{"role": "system", "content": "x"}]).question == ""


@given(st.text())
def test_nothing_is_lost(text: str) -> None:
    """Joined again, tokens are the text."""
    assert "".join(pieces(text)) == text
    assert count(text) == len(pieces(text))


def test_the_estimate_is_the_documented_one() -> None:
    """Words, pairs of characters, groups of digits, single signs."""
    assert pieces("Hello world, 1234 你好吗🚴") == [
        "Hello",
        " world",
        ",",
        " 123",
        "4",
        " ",
        "你好",
        "吗",
        "🚴",
    ]
    # 3 for the prompt, 4 for each message, and their tokens
    assert prompt_tokens(asked("Hello")) == 3 + (4 + 4) + (4 + 5)
