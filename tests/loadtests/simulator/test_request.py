"""Requests as the simulator reads them, and the profile that a model's name overrides."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.simulator import Cut, HttpError, Profile, SilentBeforeFirst
from loadtests.simulator.profile import merged, overridden, to_arguments
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


DEFAULT = Profile(rate=50)


def test_a_plain_name_changes_nothing() -> None:
    """Real model names use the server's profile."""
    assert overridden(DEFAULT, "gpt-4.1") is DEFAULT


def test_a_name_overrides_what_it_mentions() -> None:
    """Everything else stays as the server has it."""
    profile = overridden(DEFAULT, "sim-chat?ttft_ms=200&reasoning=1&split=1&ending=cut&after=3")
    assert profile == Profile(rate=50, ttft_ms=200, reasoning=1, split=True, ending=Cut(3))


def test_an_ending_is_changed_in_part() -> None:
    """Without `ending`, the server's is kept and its details change."""
    base = Profile(ending=Cut(3))
    assert overridden(base, "sim-chat?after=7") == Profile(ending=Cut(7))
    assert overridden(base, "sim-chat?ending=silent&headers=1") == Profile(
        ending=SilentBeforeFirst(headers=True)
    )


@pytest.mark.parametrize(
    "query",
    [
        "rat=5",
        "rate=fast",
        "rate=-1",
        "ending=bang",
        "after=3",
        "ending=cut&status=500",
        "rate",
        "chunk=0",
    ],
)
def test_what_means_nothing_is_refused(query: str) -> None:
    """Misspelt is 400, never ignored."""
    refusal = overridden(DEFAULT, f"sim-chat?{query}")
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.param) == (400, "model")


@pytest.mark.parametrize(
    "profile",
    [
        Profile(),
        Profile(ttft_ms=2.5, rate=10, split=True, reasoning_field="reasoning"),
        Profile(ending=HttpError(429, 2), times=1),
        Profile(ending=SilentBeforeFirst(headers=True)),
    ],
)
def test_options_of_the_command_line_are_the_same_keys(profile: Profile) -> None:
    """A profile written as options and read again is the same."""
    options = dict(option.removeprefix("--").split("=") for option in to_arguments(profile))
    given: dict[str, object] = {key.replace("-", "_"): text for key, text in options.items()}
    assert merged(Profile(), given) == profile
