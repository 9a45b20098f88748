"""The signed QA header: valid, or ignored; never an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.qa_header import NotForced, sign, verify
from router.stack import StackName

KEY = b"a key of this test"
NOW = 1_790_000_000


@pytest.mark.parametrize("stack", ["legacy", "graph"])
def test_what_was_signed_is_valid(stack: StackName) -> None:
    """For its route key, until it expires."""
    value = sign(stack, NOW + 60, "msg 1", KEY)
    assert verify(value, "msg 1", KEY, NOW) == stack
    assert verify(value, "msg 1", KEY, NOW + 59.9) == stack
    assert verify(value, "msg 1", KEY, NOW + 60) == NotForced("expired")


def test_the_signature_covers_everything() -> None:
    """Another stack, time, route key or key makes it void."""
    value = sign("graph", NOW + 60, "msg 1", KEY)
    void = NotForced("bad_signature")
    assert verify(value.replace("graph", "legacy"), "msg 1", KEY, NOW) == void
    assert verify(value.replace(str(NOW + 60), str(NOW + 61)), "msg 1", KEY, NOW) == void
    assert verify(value, "msg 2", KEY, NOW) == void
    assert verify(value, "msg 1", b"another", NOW) == void


@pytest.mark.parametrize("value", ["", "graph", "graph;exp=1", "graph;exp=-1;sig=00", "a" * 9_999])
def test_anything_else_is_malformed(value: str) -> None:
    """The shape is checked before anything is computed."""
    assert verify(value, "msg 1", KEY, NOW) == NotForced("malformed")


def test_without_a_key_nothing_is_valid() -> None:
    """An empty key must not become a key everybody knows."""
    assert verify(sign("graph", NOW + 60, "k", b""), "k", b"", NOW) == NotForced("no_key")


@given(st.text(), st.text())
def test_nothing_raises(value: str, route_key: str) -> None:
    """Whatever a client sends."""
    assert isinstance(verify(value, route_key, KEY, NOW), NotForced)
