"""What a user may say is the same in every flow: something, of bounded length, without a NUL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contract.flows.chat import ChatRequest
from contract.flows.companion import MessageTurn
from contract.flows.session import SessionRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST = 65_536
REQUESTS: Mapping[type[msgspec.Struct], Mapping[str, str]] = {
    ChatRequest: {"message_id": "m", "content": ""},
    MessageTurn: {"session_id": "s", "message": ""},
    SessionRequest: {"message": ""},
}


def taken(text: str, request: type[msgspec.Struct]) -> bool:
    """Whether a request with a text is read as the router does."""
    fields: dict[str, Any] = {name: given or text for name, given in REQUESTS[request].items()}
    try:
        read = msgspec.json.decode(msgspec.json.encode(fields), type=request)
    except msgspec.ValidationError:
        return False
    return text in msgspec.structs.astuple(read)


@given(
    st.text(st.characters(codec="utf-8") | st.sampled_from(" \t\n\u3000\x00\x1c\x85"), max_size=6),
    st.sampled_from(list(REQUESTS)),
)
@example("家", SessionRequest)
@example(" a ", MessageTurn)
@example("\ufeff", ChatRequest)
def test_any_text_is_taken_as_it_is_unless_it_is_blank(
    text: str, request: type[msgspec.Struct]
) -> None:
    """White space around it stays; nothing but white space is nothing said."""
    assert taken(text, request) == (bool(text.strip()) and "\x00" not in text)


@pytest.mark.parametrize("request_of", REQUESTS)
@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("x" * LONGEST, True),
        (" " * (LONGEST - 1) + "x", True),
        ("x" * (LONGEST + 1), False),
        (" " * LONGEST, False),
        ("x" * (LONGEST - 1) + "\x00", False),
    ],
)
def test_long_texts_are_looked_at_in_one_pass(
    request_of: type[msgspec.Struct], text: str, *, good: bool
) -> None:
    """A look that went back and forth would take minutes."""
    assert taken(text, request_of) is good
