"""The session flow's contract: what records state of its options, and how its turns are routed."""

from __future__ import annotations

import msgspec
import pytest

from contract.flows.session import SESSION, SessionOptions, SessionRequest
from contract.records import RequestRecord


def recorded(options: bytes) -> SessionOptions:
    """Read the options of a recorded request."""
    record = RequestRecord(msgspec.Raw(b'{"message":"hi"}'), msgspec.Raw(options))
    found: SessionOptions = SESSION.request_of(record).options
    return found


@pytest.mark.parametrize("options", [b"{}", b'{"model_id":"m","unknown_session":"refuse"}'])
def test_a_record_of_an_earlier_version_refuses_unknown_sessions(options: bytes) -> None:
    """That was the default, and records leave out defaults."""
    assert recorded(options).unknown_session == "refuse"


@pytest.mark.parametrize("options", [SessionOptions(), SessionOptions(unknown_session="refuse")])
def test_a_record_states_what_becomes_of_unknown_sessions(options: SessionOptions) -> None:
    """Also where it is the default."""
    assert recorded(msgspec.json.encode(options)) == options
    assert SessionOptions().unknown_session == "create"


@pytest.mark.parametrize("options", [b'{"unknown_session":1}', b'{"no":1}', b"[]", b"{"])
def test_options_of_another_kind_are_refused(options: bytes) -> None:
    """As those of any flow are."""
    with pytest.raises(msgspec.MsgspecError):
        recorded(options)


def test_a_session_is_routed_alike_from_its_first_turn_on() -> None:
    """Whether the client names it, or the router does."""
    named = SessionRequest(message="hi", session_id="s")
    unnamed = SessionRequest(message="hi")
    for wanted in ("session_id", "user_id"):
        assert SESSION.route_key(named, wanted) == SESSION.route_key(unnamed, wanted, "s")
    assert SESSION.conversation(named) == SESSION.conversation(unnamed, "s") == "s"
