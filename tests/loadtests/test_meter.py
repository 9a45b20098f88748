"""One stream's stamps become one row, on every wire, however its response is framed and cut."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.flow import FlowSpec
from contract.flows.chat import (
    CHAT,
    Accept,
    ChatEvent,
    End,
    Failed,
    Send,
    StartReply,
    Success,
    ToolFeedback,
)
from contract.flows.declared import DeclaredFlow, declared_spec
from contract.wire import Dialect, EventDecoder, EventNames, built_in, dialect_of, value_at
from loadtests.meter import How, Planned, ResponseReader, StreamMeter, accepted
from loadtests.rows import LoadRow
from tests.loadtests.streams import MS, SENT, measured

REPLY: list[tuple[int, ChatEvent | bytes]] = [
    (20, Accept()),
    (21, StartReply()),
    (100, Send("a")),
    (160, Send("ab")),
    (300, Send("abc")),
    (301, Success("abc")),
    (302, End()),
]


def test_a_whole_stream_has_every_moment() -> None:
    """All moments are counted from sending, the lag from the schedule."""
    row = measured(REPLY)
    assert (row.ending, row.code) == ("complete", "")
    assert (row.headers, row.first_event, row.first_token) == (10 * MS, 20 * MS, 100 * MS)
    assert (row.first_text, row.last_content, row.terminal) == (100 * MS, 300 * MS, 302 * MS)
    assert (row.events, row.contents, row.gaps) == (7, 3, (60_000, 140_000))
    assert row.lag == 3 * MS


def test_an_event_that_adds_no_text_is_no_content() -> None:
    """An empty first chunk, a repeated text and tool feedback do not start or prolong a reply."""
    quiet: list[tuple[int, ChatEvent | bytes]] = [
        (50, Send("")),
        *REPLY[2:4],
        (400, Send("ab", tool_call_feedback=ToolFeedback("t", "done"))),
    ]
    row = measured([*quiet, (500, Success("ab")), (501, End())])
    assert (row.first_token, row.last_content, row.contents) == (100 * MS, 160 * MS, 2)


def test_reasoning_is_the_first_token_and_not_the_first_text() -> None:
    """TTFT counts reasoning, TTFO the answer alone."""
    row = measured([(90, Send("", reason_content="hm")), *REPLY[2:]])
    assert (row.first_token, row.first_text) == (90 * MS, 100 * MS)


@pytest.mark.parametrize(
    ("events", "how", "ending", "code"),
    [
        (REPLY, "done", "complete", ""),
        (REPLY, "cut", "truncated", "closed"),
        (REPLY[:4], "cut", "truncated", "closed"),
        (REPLY[:4], "done", "truncated", "no_terminal"),
        ([*REPLY[:3], (200, Failed("model_error")), (201, End())], "done", "error", "model_error"),
        ([*REPLY[:3], (200, Failed()), (201, End())], "done", "error", "failed"),
        ([*REPLY[:3], (200, b"data: {oops\n\n"), (201, End())], "done", "error", "malformed"),
        ([*REPLY[:3], (200, b'data: {"step":"\xff"}\n\n')], "done", "error", "malformed"),
        ([*REPLY[:3], (200, b"data: " + b"[" * 100_000 + b"\n\n")], "done", "error", "malformed"),
        (REPLY[:4], "timeout", "timeout", "closed"),
        (REPLY[:4], "cancelled", "cancelled", "closed"),
    ],
)
def test_a_stream_is_complete_only_when_all_of_it_came(
    events: list[tuple[int, ChatEvent | bytes]], how: How, ending: str, code: str
) -> None:
    """Terminal frame, no failure frame and a proper end of the response, all three."""
    row = measured(events, how)
    assert (row.ending, row.code) == (ending, code)


def test_silences_over_the_limit_are_stalls() -> None:
    """Between contents, and from the last one to the end; waiting for the first is TTFT's."""
    stalled: list[tuple[int, ChatEvent | bytes]] = [
        (3_000, Send("a")),
        (6_000, Send("ab")),
        (6_500, Send("abc")),
    ]
    assert measured(stalled, "timeout", at=9_000).stalls == 2


def _meter(status: int) -> StreamMeter:
    meter = StreamMeter(CHAT, Planned(0, "legacy", "m", SENT), SENT)
    if status:
        meter.started(status, {"served": "legacy"}, SENT + MS)
    return meter


def test_a_refusal_carries_the_code_of_its_problem() -> None:
    """`application/problem+json` says why; without one the status does."""
    meter = _meter(409)
    meter.body(b'{"status":409,"co', SENT + MS)
    meter.body(b'de":"locked"}', SENT + MS)
    row = meter.row("done", SENT + 2 * MS)
    assert (row.ending, row.code, row.status) == ("refused", "locked", 409)
    assert _meter(503).row("done", SENT + MS).code == "http_503"


@pytest.mark.parametrize("body", [b'{"code":"\xff"}', b"[" * 4_096])
def test_an_unreadable_refusal_is_a_refusal(body: bytes) -> None:
    """No UTF-8, or nested without end, as what stands in front of a stack may answer."""
    meter = _meter(500)
    meter.body(body, SENT + MS)
    row = meter.row("done", SENT + 2 * MS)
    assert (row.ending, row.code) == ("refused", "http_500")


def test_no_answer_at_all_is_unreachable() -> None:
    """A connection that failed before any header."""
    row = _meter(0).row("cut", SENT + MS, code="ECONNREFUSED")
    assert (row.ending, row.code, row.headers) == ("unreachable", "ECONNREFUSED", None)


def test_any_dialect_can_be_measured() -> None:
    """Deltas, events named by the SSE field, lines of JSON: the declaration is enough."""
    dialect = Dialect(text={"text": "data.content"}, terminal=("done",))
    lines = msgspec.structs.replace(dialect, framing="ndjson", event=EventNames(path="event"))
    for spec, wire in (
        (dialect, b'event: text\ndata: {"data":{"content":"hi"}}\n\nevent: done\ndata: {}\n\n'),
        (lines, b'{"event":"text","data":{"content":"hi"}}\n\n{"event":"done"}\n'),
    ):
        flow = dataclasses.replace(CHAT, dialect=spec)
        meter = StreamMeter(flow, Planned(0, "legacy", "m", SENT), SENT)
        meter.started(200, {}, SENT)
        meter.body(wire, SENT + MS)
        row = meter.row("done", SENT + 2 * MS)
        assert (row.ending, row.contents, row.first_text) == ("complete", 1, MS)


@given(st.data())
def test_where_the_wire_is_cut_changes_no_count(data: st.DataObject) -> None:
    """Pieces may end anywhere, inside a character too."""
    events = [Accept(), StartReply(), Send("温度"), Send("温度 21°"), Success("温度 21°"), End()]
    wire = b"".join(map(CHAT.encode, events))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(wire) - 1), max_size=12)))
    edges = [0, *cuts, len(wire)]
    pieces = [wire[a:b] for a, b in pairwise(edges)]
    row = measured([(n, piece) for n, piece in enumerate(pieces)])
    assert (row.ending, row.events, row.contents) == ("complete", 6, 2)


BODY = b"".join(map(CHAT.encode, (Accept(), StartReply(), Send("hi"), Success("hi"), End())))
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Cutover-Served: graph abc\r\n\r\n"
    + f"{len(BODY):x}\r\n".encode()
    + BODY
    + b"\r\n0\r\n\r\n"
)
SIZED = f"HTTP/1.1 200 OK\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY
OPEN_ENDED = b"HTTP/1.1 200 OK\r\n\r\n" + BODY


def read(wire: bytes, size: int) -> tuple[ResponseReader, LoadRow]:
    """Feed a response in pieces and then close the connection."""
    meter = StreamMeter(CHAT, Planned(0, "graph", "m", 0), 0)
    reader = ResponseReader(meter)
    for number, start in enumerate(range(0, len(wire), size)):
        reader.feed(wire[start : start + size], number)
    return reader, meter.row(reader.ended(), len(wire), code="closed")


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize(
    "wire", [CHUNKED, SIZED, OPEN_ENDED, b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED]
)
def test_a_whole_response_is_complete_however_it_is_framed(wire: bytes, size: int) -> None:
    """Chunked, with a length, or ended by closing; after an interim answer too."""
    _, row = read(wire, size)
    assert (row.ending, row.contents, row.status) == ("complete", 1, 200)


def test_bytes_count_when_they_arrive() -> None:
    """The first text has the stamp of the very byte that ended its frame."""
    _, row = read(SIZED, 1)
    assert row.first_text == SIZED.index(b'"content":"hi"}\n\n') + len(b'"content":"hi"}\n\n') - 1


@pytest.mark.parametrize("wire", [CHUNKED[:-1], CHUNKED[:-30], SIZED[:-1]])
def test_a_response_that_breaks_off_is_truncated(wire: bytes) -> None:
    """Even when its terminal frame had come: the transport was cut."""
    reader, row = read(wire, 10)
    assert not reader.done
    assert (row.ending, row.code) == ("truncated", "closed")


def test_our_own_headers_are_labels() -> None:
    """Who served, and which exchange it was, stays with the row."""
    assert read(CHUNKED, 50)[1].labels == {"served": "graph abc"}


def test_a_response_that_is_not_http_is_reported() -> None:
    """A port that speaks something else does not look like a slow stack."""
    reader, row = read(b"SSH-2.0-OpenSSH\r\n\r\n", 100)
    assert reader.broken
    assert row.ending == "unreachable"


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


def test_an_empty_body_is_no_stream() -> None:
    """Also on a wire of which the end of the body is the only end."""
    row = streamed("framing = 'text'")
    assert (row.ending, row.code) == ("truncated", "no_terminal")


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
