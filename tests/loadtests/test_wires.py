"""What an event says, on every wire there is."""

from __future__ import annotations

import pytest

from contract.flow import FlowSpec
from contract.flows.declared import DeclaredFlow, declared_spec
from contract.wire import EventDecoder, built_in, dialect_of, value_at
from loadtests.meter import How, Planned, StreamMeter, accepted
from loadtests.rows import LoadRow
from tests.loadtests.streams import MS, SENT

OPENAI = (
    b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n',
    b'data: {"choices":[{"delta":{"reasoning_content":"hm"}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"hi"}}],"usage":null}\n\n',
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
)
OLLAMA = (
    b'{"message":{"content":"hi"},"done":false}\n',
    b"\n",
    b'{"message":{"content":""},"done":true}',
)
TEXT = 'payload = "text"\nskip = ["ping"]\n[text]\n"*" = "value"\n'
GROWING = """
growth = "cumulative"
terminal = ["end"]
[event]
path = "kind"
[text]
say = "parts[*].text"
[errors]
events = ["bad"]
code = ["why", "error.code"]
"""
ENDS = {
    "openai": b"data: [DONE]\n\n",
    "ndjson": b'{"done":true}\n',
    GROWING: b'data: {"kind":"end"}\n\n',
}


def spec(declared: str) -> FlowSpec:
    """Declare a flow with a built-in dialect, or with one of its own."""
    files = built_in()
    file = files[declared] if declared in files else dialect_of(declared, "here", "support")
    return declared_spec("support", DeclaredFlow(path="/api/support", dialect=file))


def streamed(declared: str, *pieces: bytes, how: How = "done") -> LoadRow:
    """Measure a stream, a piece a millisecond, that ends a millisecond after the last."""
    meter = StreamMeter(spec(declared), Planned(0, "legacy", "m", SENT), SENT)
    meter.started(200, {}, SENT)
    for number, piece in enumerate(pieces, 1):
        meter.body(piece, SENT + number * MS)
    return meter.row(how, SENT + (len(pieces) + 1) * MS, code="closed")


def test_a_declared_wire_has_every_moment() -> None:
    """Empty chunks and finish reasons are no words, reasoning is, and `[DONE]` is the end."""
    row = streamed("openai", *OPENAI)
    assert (row.ending, row.events, row.contents) == ("complete", 5, 2)
    assert (row.first_event, row.first_token, row.first_text) == (MS, 2 * MS, 3 * MS)
    assert (row.last_content, row.terminal) == (3 * MS, 5 * MS)


def test_a_last_line_without_its_end_counts() -> None:
    """At the moment the body was over."""
    row = streamed("ndjson", *OLLAMA)
    assert (row.ending, row.events, row.contents, row.comments) == ("complete", 2, 1, 1)
    assert row.terminal == 4 * MS
    assert streamed("ndjson", *OLLAMA, how="cut").ending == "truncated"


@pytest.mark.parametrize(
    ("declared", "piece", "code"),
    [
        ("openai", b'data: {"error":{"type":"server_error"}}\n\n', "server_error"),
        ("openai", b'data: {"error":{"code":503}}\n\n', "503"),
        ("openai", b"data: {oops\n\n", "malformed"),
        ("ndjson", b'{"error":"overloaded"}\n', "failed"),
        (GROWING, b'data: {"kind":"bad","error":{"code":"full"}}\n\n', "full"),
        (GROWING, b'data: {"kind":"bad"}\n\n', "failed"),
    ],
)
def test_a_reported_failure_is_an_error(declared: str, piece: bytes, code: str) -> None:
    """With its code, wherever it stands, also where the stream ends properly after it."""
    for more in ((), (ENDS[declared],)):
        row = streamed(declared, piece, *more)
        assert (row.ending, row.code) == ("error", code)


def test_a_text_that_is_sent_whole_again_has_not_grown() -> None:
    """Each place by itself, though it comes after another."""
    row = streamed(
        GROWING,
        b'data: {"kind":"say","parts":[{"text":"a"}]}\n\n',
        b'data: {"kind":"say","parts":[{"text":"a"}]}\n\n',
        b'data: {"kind":"say","parts":[{"text":"a"},{"text":"b"}]}\n\n',
        b'data: {"kind":"end"}\n\n',
    )
    assert (row.ending, row.contents, row.last_content) == ("complete", 2, 3 * MS)


def test_plain_text_ends_with_its_body() -> None:
    """Nothing says that it is over; a ping says nothing, and a body that breaks off is cut."""
    pieces = (b"event: ping\ndata: \n\n", b"data: hello\n\n", b"data: [there\n\n")
    row = streamed(TEXT, *pieces)
    assert (row.ending, row.code, row.events, row.contents) == ("complete", "", 2, 2)
    assert (row.first_event, row.terminal) == (2 * MS, 4 * MS)
    assert streamed(TEXT, *pieces, how="cut").ending == "truncated"


def test_a_payload_that_is_no_object_says_nothing() -> None:
    """A number, a list, null: events without a text."""
    decoder = EventDecoder(spec("openai").dialect)
    for event in (decoder.event("", data) for data in (b"7", b"[1]", b"null")):
        assert (list(event.texts()), event.failure, event.ends) == ([], None, False)


def test_nothing_stands_behind_the_end_of_a_list() -> None:
    """Nor below a text, nor at a name in a list."""
    body = {"parts": [{"text": "a"}]}
    assert value_at(body, ("parts", 0, "text")) == "a"
    for path in (("parts", 1, "text"), ("parts", "text"), ("parts", 0, "text", "more")):
        assert value_at(body, path) is None


def test_a_client_asks_for_what_the_wire_is() -> None:
    """There is no registered media type for lines of JSON."""
    assert accepted(spec("openai").dialect) == "text/event-stream"
    assert accepted(spec("ndjson").dialect) == "application/x-ndjson, */*"
