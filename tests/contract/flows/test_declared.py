"""Declared flows: what requests are routed by, how a broken stream ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.flow import FlowSpec, PassedEvent
from contract.flows.declared import DeclaredFlow, DeclaredPause, declared_spec
from contract.human import check_answer
from contract.wire import Dialect, FailureFrame, built_in


def flow(file: Dialect | None = None, **route_keys: str) -> FlowSpec:
    """Declare a flow."""
    dialect = file or built_in()["openai"]
    return declared_spec("x", DeclaredFlow(path="/x", dialect=dialect, route_keys=route_keys))


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ({"a": {"b": "t1"}}, "t1"),
        ({"a": {"b": 7}}, "7"),
        ({"a": {"b": ""}, "user": "u"}, None),
        ({"a": {"b": True}}, None),
        ({"a": {"b": ["t1"]}}, None),
        ({"a": "t1"}, None),
        ({"a": {"b": "t" * 600}}, None),
        ({}, None),
    ],
)
def test_a_request_is_routed_by_a_field_or_by_all_of_it(
    body: dict[str, Any], key: str | None
) -> None:
    """What is no text and no number is no key; no request is turned down for the want of one."""
    declared = flow(session_id="a.b", user_id="user")
    found = declared.route_key(body, "session_id")
    assert declared.conversation(body) == key
    assert found == (key or declared.route_key(dict(reversed(body.items())), ""))


@given(st.dictionaries(st.text(), st.integers() | st.text()))
def test_equal_requests_go_the_same_way(body: dict[str, Any]) -> None:
    """Whatever the order of their keys."""
    other = dict(reversed(body.items()))
    assert flow().route_key(body, "") == flow().route_key(other, "session_id")


def test_a_broken_stream_ends_in_the_frames_of_its_wire() -> None:
    """An error the stack has told itself is not told again; after the end there is nothing."""
    declared = flow()
    told = [
        declared.encode(event) for event in declared.failure(None, "stall", PassedEvent("chunk"))
    ]
    assert told[0].endswith(b'"code":"stall"}}\n\n')
    assert told[1:] == [b"data: [DONE]\n\n"]
    again = declared.failure(None, "stall", PassedEvent("error"))
    assert [declared.encode(event) for event in again] == [b"data: [DONE]\n\n"]
    assert declared.failure(None, "stall", PassedEvent("[DONE]")) == ()


def test_failure_frames_may_be_named_or_lines() -> None:
    """As the framing has it; where none is declared there is none."""
    named = Dialect(failure=(FailureFrame(event="error", data="a\n{code}"),))
    (event,) = flow(named).failure(None, "stall", None)
    assert flow(named).encode(event) == b"event: error\ndata: a\ndata: stall\n\n"
    lines = Dialect(framing="ndjson", failure=('{"error":"{code}"}',))
    (event,) = flow(lines).failure(None, "stall", None)
    assert flow(lines).encode(event) == b'{"error":"stall"}\n'
    plain = Dialect(framing="text", failure=("\n(broken off: {code})\n",))
    (event,) = flow(plain).failure(None, "stall", None)
    assert flow(plain).encode(event) == b"\n(broken off: stall)\n"
    assert flow(Dialect()).failure(None, "stall", None) == ()


@pytest.mark.parametrize(
    ("dialect", "made", "name", "frame"),
    [
        ("openai", {"error": {"code": "x"}}, "error", b'data: {"error":{"code":"x"}}\n\n'),
        ("openai", "[DONE]", "[DONE]", b"data: [DONE]\n\n"),
        ("anthropic-messages", ("message_stop", {}), "message_stop", b"event: message_stop\n"),
        ("ndjson", {"done": True}, "done", b'{"done":true}\n'),
        ("text", "as it is\n", "message", b"as it is\n"),
    ],
)
def test_code_in_this_process_makes_events_of_json_or_text(
    dialect: str, made: Any, name: str, frame: bytes
) -> None:
    """The dialect names and frames them; a pair has the name of its `event:` line."""
    spec = flow(built_in()[dialect])
    event = spec.event_of(made)
    assert spec.name_of(event) == name
    assert spec.encode(event).startswith(frame)
    assert spec.event_of(event) is event


@pytest.mark.parametrize("answer", [None, True, 0, "", [], {"a": 1}])
def test_a_pause_takes_any_json_at_its_paths(answer: Any) -> None:
    """What waits for it gets it as it was posted."""
    pause = DeclaredPause(path="/y", id="q.id", answer="q.answer", frames=("[DONE]",))
    spec = declared_spec("x", DeclaredFlow(path="/x", dialect=built_in()["openai"], pause=pause))
    assert spec.pausing is not None
    resume = spec.pausing.resume
    body = {"q": {"id": "h1", "answer": answer}}
    assert (resume.path, resume.hitl_id(body), resume.hitl_id({})) == ("/y", "h1", "")
    assert resume.answer is not None
    given = resume.answer(body)
    assert check_answer(spec.pausing.form({"which": 1}), given) == ()
    assert spec.pausing.value(given) == answer
    waiting, done = PassedEvent("message"), PassedEvent("[DONE]")
    assert [spec.encode(one) for one in spec.pausing.suspended(None, waiting)] == [
        b"data: [DONE]\n\n"
    ]
    assert spec.pausing.suspended(None, done) == ()
