"""The session's rules: from whose words facts are drawn."""

from __future__ import annotations

from contract.flow import Request
from contract.flows.session import SessionOptions, SessionRequest
from contract.stores import Turn
from rules import session as rules


def turn(number: int, user: str | None) -> Turn:
    """Build a turn of a user."""
    return Turn(message_id=f"m{number}", role="user", content=f"said {number}", user_id=user)


def drawn(user: str | None, *turns: Turn) -> str | None:
    """Give what facts would be drawn from when a user has had the last word."""
    asked = Request(SessionRequest(message="hi", session_id="s", user_id=user), SessionOptions())
    call = rules.facts_call(asked, turns)
    return None if call is None else str(call.messages[-1].content)


def test_nothing_is_learnt_of_another_user() -> None:
    """Of a session several people know, each is remembered by their own turns alone."""
    anns = [turn(number, "ann") for number in range(4)]
    bobs = [turn(number, "bob") for number in range(4, 8)]
    assert drawn("bob", *anns, *bobs[:3]) is None
    said = drawn("bob", *anns, *bobs)
    assert said == "\n".join(f"user: said {number}" for number in range(4, 8))


def test_turns_before_a_user_was_named_count_as_theirs() -> None:
    """Only this user's facts are stored; without a user none are extracted."""
    nobodys = [turn(number, None) for number in range(3)]
    assert drawn("ann", *nobodys, turn(3, "ann")) is not None
    assert drawn(None, *nobodys, turn(3, None)) is None
