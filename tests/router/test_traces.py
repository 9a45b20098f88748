"""Which exchange a trace belongs to."""

from __future__ import annotations

import pytest

from router.context import Traces, trace_of

TRACE = b"0af7651916cd43dd8448eb211c80319c"
PARENT = b"00-" + TRACE + b"-b7ad6b7169203331-01"
CHILD = b"00-" + TRACE + b"-00f067aa0ba902b7-00"


def headers(value: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Make the headers of a traced request."""
    return ((b"host", b"here"), (b"traceparent", value))


def test_a_stacks_call_belongs_to_the_exchange_of_its_trace() -> None:
    """Whatever span made it, until the exchange is over."""
    traces = Traces()
    traces.note("a", headers(PARENT))
    assert traces.exchange(headers(CHILD)) == "a"
    assert traces.exchange(()) is None
    traces.forget("a")
    assert traces.exchange(headers(CHILD)) is None
    traces.forget("a")


def test_two_exchanges_of_one_trace_are_told_apart_by_nothing() -> None:
    """A call belongs to neither, until one of them is over."""
    traces = Traces()
    traces.note("a", headers(PARENT))
    traces.note("b", headers(CHILD))
    assert traces.exchange(headers(CHILD)) is None
    traces.forget("a")
    assert traces.exchange(headers(CHILD)) == "b"


@pytest.mark.parametrize(
    "value", [b"", b"00-a-b-01", PARENT.upper(), PARENT.replace(TRACE, b"0" * 32), PARENT + b"x"]
)
def test_what_is_no_trace(value: bytes) -> None:
    """Is of no exchange."""
    assert trace_of(headers(value)) is None


def test_a_later_version_may_say_more() -> None:
    """Its beginning is the same."""
    assert trace_of(headers(PARENT + b"-more")) == TRACE
