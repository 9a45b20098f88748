"""The chat flow's wire: exact bytes, honest endings, and what a request may hold."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.flows.chat import (
    CHAT,
    Accept,
    ChatEvent,
    ChatOptions,
    ChatRequest,
    End,
    Failed,
    ModelOverrides,
    Send,
    StartReply,
    Success,
    ToolFeedback,
    failure,
)
from contract.grammar import GrammarCheck

STRICT, EXTENDED = ChatOptions(), ChatOptions(wire="extended")


@pytest.mark.parametrize(
    ("event", "frame"),
    [
        (Accept(), '{"step":"ACCEPT"}'),
        (StartReply(), '{"step":"START_REPLY"}'),
        (Send("你好"), '{"step":"SEND","content":"你好"}'),
        (Send(""), '{"step":"SEND","content":""}'),
        (
            Send("a", tool_call_feedback=ToolFeedback("dice", "running")),
            '{"step":"SEND","content":"a","tool_call_feedback":{"tool":"dice","status":"running"}}',
        ),
        (
            Send("a", "why", ToolFeedback("dice", "error")),
            (
                '{"step":"SEND","content":"a","reason_content":"why",'
                '"tool_call_feedback":{"tool":"dice","status":"error"}}'
            ),
        ),
        (Send('"\n\\\u2028'), '{"step":"SEND","content":"\\"\\n\\\\\u2028"}'),
        (Success("all"), '{"step":"SUCCESS","content":"all"}'),
        (Failed(), '{"step":"FAILED"}'),
        (Failed("model_error"), '{"step":"FAILED","code":"model_error"}'),
        (End(), '{"step":"END"}'),
    ],
)
def test_an_event_has_exactly_these_bytes(event: ChatEvent, frame: str) -> None:
    """Compact UTF-8, keys in the documented order, absent keys left out, a blank line last."""
    assert CHAT.encode(event) == f"data: {frame}\n\n".encode()


def streams() -> st.SearchStrategy[list[ChatEvent]]:
    """Give beginnings of streams a flow may have produced when it failed."""
    sends = st.lists(st.text(max_size=3), max_size=4).map(_growing)
    ends: list[list[ChatEvent]] = [[], [Success("")], [Failed()], [Failed(), End()]]
    whole = st.tuples(sends, st.sampled_from(ends)).map(_stream)
    return st.tuples(whole, st.integers(0, 9)).map(lambda made: made[0][: made[1]])


def _growing(pieces: list[str]) -> list[ChatEvent]:
    return [Send("".join(pieces[: count + 1])) for count in range(len(pieces))]


def _stream(made: tuple[list[ChatEvent], list[ChatEvent]]) -> list[ChatEvent]:
    sends, end = made
    last = sends[-1] if sends else Send("")
    text = last.content if isinstance(last, Send) else ""
    closing = [Success(text) if isinstance(event, Success) else event for event in end]
    return [Accept(), StartReply(), *sends, *closing]


@given(streams(), st.sampled_from([STRICT, EXTENDED]))
def test_a_failure_after_any_event_completes_the_grammar(
    begun: list[ChatEvent], options: ChatOptions
) -> None:
    """Whatever the client has got, the failure frames make an honest, whole stream of it."""
    check = GrammarCheck(CHAT.grammar)
    rest = failure(options, "internal", begun[-1] if begun else None)
    for event in (*begun, *rest):
        check.event(CHAT.name_of(event), CHAT.text_of(event))
    assert check.complete
    assert [event for event in (*begun, *rest) if isinstance(event, End)] == [End()]


def test_only_the_extended_wire_says_why() -> None:
    """The strict wire's FAILED has no code."""
    assert failure(STRICT, "internal", Send("a")) == (Failed(), End())
    assert failure(EXTENDED, "internal", Send("a")) == (Failed("internal"), End())
    assert failure(STRICT, "internal", Success("a")) == (End(),)
    assert failure(STRICT, "internal", End()) == ()


def test_the_spec_knows_names_and_texts_of_events() -> None:
    """All that router and compare ask of an event."""
    assert CHAT.name_of(Send("a")) == "SEND"
    assert [CHAT.text_of(event) for event in (Send("a"), Success("b"), End())] == ["a", "b", None]


@pytest.mark.parametrize(
    ("wanted", "key"),
    [("message_id", "m"), ("session_id", "c"), ("user_id", "u"), ("nonsense", "m")],
)
def test_a_request_is_routed_by_the_key_that_is_wanted(wanted: str, key: str) -> None:
    """The session is the chat; an unknown key is the default one."""
    body = ChatRequest(message_id="m", chat_id="c", user_id="u")
    assert CHAT.route_key(body, wanted) == key


@pytest.mark.parametrize("wanted", ["session_id", "user_id"])
def test_a_request_without_the_wanted_key_is_routed_by_the_default(wanted: str) -> None:
    """A message id is always there."""
    assert CHAT.route_key(ChatRequest(message_id="m"), wanted) == "m"


def request(**fields: Any) -> ChatRequest:
    """Read a request as the router does."""
    return msgspec.json.decode(msgspec.json.encode({"message_id": "m"} | fields), type=ChatRequest)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"message_id": "x" * 128},
        {"content": "x" * 65_536},
        {"content": "line\nline\ttab\n"},
        {"content": "😀\u202e"},
        {"user_name": "小明", "chat_id": "c", "user_id": "u"},
        {"model_config": {"temperature": 0, "max_tokens": 1, "max_tool_iterations": 0}},
        {"model_config": {"temperature": 2, "max_tokens": 65_536, "max_tool_iterations": 50}},
        {"prompt_params": {"mood": "gay", "n": 1, "x": 0.5, "nothing": None, "empty": ""}},
        {"prompt_params": {"long": "x" * 8_192}},
        {"unknown": "passed over"},
    ],
)
def test_a_request_within_limits_is_read(fields: dict[str, Any]) -> None:
    """Up to and with each limit; fields of later versions are passed over."""
    assert request(**fields).message_id == fields.get("message_id", "m")


REFUSED: dict[str, list[Any]] = {
    "message_id": ["", None, 7, "x" * 129, "a\x00b", "a\nb", "a\n"],
    "content": ["", ["a"], "a\x00", "x" * 65_537],
    "user_name": ["", "x" * 65, "a]\n[system", "a\n"],
    "chat_id": [""],
    "user_id": [True],
    "model_config": [
        [],
        *({"temperature": odd} for odd in (-0.1, 2.1, "hot")),
        *({"max_tokens": odd} for odd in (0, 1.5, 65_537)),
        *({"max_tool_iterations": odd} for odd in (51, -1)),
        *({"enable_tools": "yes"}, {"model_id": ""}),
    ],
    "prompt_params": [
        *({"a": odd} for odd in (["list"], "\x00", "x" * 8_193)),
        *({"": "nameless"}, "text"),
    ],
}


@pytest.mark.parametrize("fields", [{name: odd} for name in REFUSED for odd in REFUSED[name]])
def test_a_request_beyond_limits_is_refused(fields: dict[str, Any]) -> None:
    """Empty, too long, of the wrong type, with control characters where none belong."""
    with pytest.raises(msgspec.ValidationError):
        request(**fields)


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"{}", b'{"message_id":"\\ud800"}', b'{"message_id":"\xff"}']
)
def test_what_is_no_request_is_refused(body: bytes) -> None:
    """Lone surrogates and broken UTF-8 among it: they could not be stored or sent on."""
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        msgspec.json.decode(body, type=ChatRequest)


@given(
    st.builds(
        ModelOverrides,
        temperature=st.none() | st.floats(0, 2),
        max_tokens=st.none() | st.integers(1, 65_536),
        enable_tools=st.none() | st.booleans(),
    )
)
def test_a_request_survives_being_recorded(settings: ModelOverrides) -> None:
    """Replays read it back from the capture."""
    asked = ChatRequest(message_id="m", content="x", model_config=settings)
    assert msgspec.json.decode(msgspec.json.encode(asked), type=ChatRequest) == asked


@pytest.mark.parametrize(
    "bad", [{"wire": "loose"}, {"yield_interval": -1}, {"lock_ttl": 0}, {"x": 1}]
)
def test_misspelt_options_are_refused(bad: dict[str, Any]) -> None:
    """Configuration is read strictly: an unknown key is a mistake."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(bad, ChatOptions)
