"""One stream's stamps become one row."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from contract.wire import Dialect, EventNames
from loadtests.meter import How, Planned, StreamMeter
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
