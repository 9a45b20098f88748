"""What the meter makes of streams: when the first text came, the longest silence, the ending."""

import asyncio
import socket
from typing import Any

import pytest

from cutover.wire import Dialect, find_dialect
from loadtests.meter import Asked, Cut, Meter, send
from loadtests.rows import Row, summary
from tests.loadtests.test_report import FIGURES
from tests.support.origin import Origin, Reply

CHAT = find_dialect("chat-completions")
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
ONE = b'data: {"choices":[{"index":0,"delta":{"content":"one"}}]}\n\n'
TWO = b'data: {"choices":[{"index":0,"delta":{"content":" two"}}]}\n\n'
THOUGHT = b'data: {"choices":[{"index":0,"delta":{"reasoning_content":"so"}}]}\n\n'
CALL = (
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":'
    b'{"name":"add","arguments":"{}"}}]}}]}\n\n'
)
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"no","code":"overloaded"}}\n\n'


def read(
    *arrivals: tuple[float, bytes],
    dialect: Dialect = CHAT,
    status: int = 200,
    cut: Cut = "",
    headers: dict[str, str] | None = None,
) -> Row:
    """Return the row of a stream whose pieces arrive at seconds after it was due; sent at 0.01."""
    now = 100.01
    row = Row(flow="chat", due=0.0)
    meter = Meter(dialect, row, 100.0, lambda: now)
    if status:
        meter.begin(status, headers or {})
    for at, piece in arrivals:
        now = 100.0 + at
        meter.feed(piece)
    now += 0.5
    meter.end(cut, "Fault" if cut else "")
    return row


WHOLE = ((0.1, ROLE), (0.2, ONE), (0.5, TWO), (0.6, STOP), (0.7, DONE))


def test_times_count_from_the_due_moment() -> None:
    """An empty role is no text; the end is the terminal event, whatever the body does then."""
    row = read(*WHOLE)
    assert (row.ending, row.sent_ms, row.pieces) == ("complete", 10.0, 2)
    assert (row.ttft_ms, row.gap_ms, row.ended_ms) == (200.0, 300.0, 700.0)
    assert row.received == sum(len(piece) for _, piece in WHOLE)


@pytest.mark.parametrize("size", [1, 3, 50])
def test_cuts_of_the_bytes_change_nothing(size: int) -> None:
    """Pieces of any size that arrive at one moment are read as that moment's."""
    pieces = [
        (at, block[start : start + size])
        for at, block in WHOLE
        for start in range(0, len(block), size)
    ]
    assert read(*pieces) == read(*WHOLE)


@pytest.mark.parametrize(
    ("arrivals", "ttft"),
    [
        (((0.2, THOUGHT), (0.9, ONE)), 200.0),
        (((0.2, CALL), (0.9, ONE)), 900.0),
        (((0.2, b": thinking\n\n"), (0.9, ONE)), 900.0),
        (((0.2, CALL),), None),
    ],
)
def test_the_first_text_is_answer_or_reasoning(
    arrivals: tuple[tuple[float, bytes], ...], ttft: float | None
) -> None:
    """Calls of tools and comments are none."""
    assert read(*arrivals, (1.0, STOP + DONE)).ttft_ms == ttft


@pytest.mark.parametrize(
    ("arrivals", "status", "cut", "ending", "code"),
    [
        (WHOLE[:-1], 200, "unreachable", "truncated", "Fault"),
        (WHOLE[:2], 200, "", "truncated", ""),
        (((0.1, ROLE), (0.2, ERROR)), 200, "", "failed", "overloaded: no"),
        (((0.2, ONE), (0.3, ERROR)), 200, "unreachable", "failed", "overloaded: no"),
        (WHOLE, 200, "unreachable", "complete", ""),
        (WHOLE, 200, "timeout", "complete", ""),
        (WHOLE[:2], 200, "timeout", "timeout", "Fault"),
        (WHOLE[:2], 200, "stopped", "stopped", "Fault"),
        (((0.1, b'{"code":"locked"}'),), 409, "", "refused", "http_409"),
        (WHOLE, 503, "unreachable", "refused", "http_503"),
        ((), 0, "unreachable", "unreachable", "Fault"),
        ((), 0, "timeout", "timeout", "Fault"),
        (((0.1, b"<html>"),), 200, "", "truncated", ""),
    ],
)
def test_an_ending_is_told_from_every_other(
    arrivals: tuple[tuple[float, bytes], ...], status: int, cut: Cut, ending: str, code: str
) -> None:
    """What has its terminal event is complete, however the connection ends."""
    row = read(*arrivals, status=status, cut=cut)
    assert (row.ending, row.code) == (ending, code)


@pytest.mark.parametrize("case", FIGURES["tokens"])
def test_tokens_are_those_that_the_stream_tells(case: dict[str, Any]) -> None:
    """Where its dialect knows them; the ids that it gave are there for the next turn."""
    meter = Meter(find_dialect(case.get("dialect", "chat-completions")), Row(flow="", due=0), 0.0)
    meter.begin(200, {})
    for event in case.get("events", ()):
        meter.feed(b"data: " + event.encode() + b"\n\n")
    assert meter.ids == case.get("ids", {})  # once the answer has ended, though its body has not
    meter.end()
    assert meter.row.tokens == case.get("tokens")


def test_tokens_and_pieces_a_second_are_from_the_first_text_to_the_last() -> None:
    """Pieces that came together count one by one; without a second one there is no rate."""
    told = b'data: {"choices":[],"usage":{"completion_tokens":31}}\n\n'
    row = read((0.1, ROLE), (0.2, ONE + TWO), (0.5, TWO), (0.6, STOP), (0.9, told))
    assert (row.pieces, row.pieces_s, row.tokens_s) == (3, 6.667, 100.0)
    row = read((0.2, ONE), (0.6, STOP), (0.9, told))
    assert (row.tokens, row.pieces_s, row.tokens_s) == (31, None, None)


def test_plain_text_ends_with_its_body() -> None:
    """A dialect without a terminal event is complete where the body is."""
    text = find_dialect("text")
    assert read((0.1, b"Hello"), dialect=text).ending == "complete"
    assert read((0.1, b"Hello"), dialect=text, cut="unreachable").ending == "truncated"


def test_the_stack_that_takes_over_is_the_one_that_served() -> None:
    """A router names it in a header, and in mid-stream in a comment."""
    labels = {f"x-cutover-{name}": "graph" for name in ("assigned", "served", "exchange")}
    row = read(*WHOLE, headers=labels)
    assert (row.assigned, row.served, row.exchange) == ("graph", "graph", "graph")
    taken = read(*WHOLE[:2], (0.3, b": served-by legacy 8f\n\n"), *WHOLE[2:], headers=labels)
    assert (taken.assigned, taken.served, taken.ending) == ("graph", "legacy", "complete")


def test_the_last_lines_of_the_log_are_exact() -> None:
    """No percentile is said of fewer requests than it needs."""
    rows = [
        Row(flow="chat", due=0.0, ttft_ms=float(n), ended_ms=n + 100.0, ending="complete")
        for n in range(1, 102)
    ]
    rows.append(Row(flow="chat", due=0.0, ending="refused"))
    assert summary(rows) == (
        "101 complete, 1 refused; P50/P95/P99 of TTFT 51/96/100, of E2E 151/196/200 ms"
    )
    assert "TTFT 11/-/-" in summary(rows[1:20])
    assert summary([]) == "none sent; P50/P95/P99 of TTFT -/-/-, of E2E -/-/- ms"


SSE = "text/event-stream"


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("reply", "ending", "pieces"),
    [
        (Reply((ROLE, ONE, TWO, STOP, DONE), SSE), "complete", 2),
        (Reply((ROLE, ONE, "reset"), SSE), "truncated", 1),
        (Reply((ROLE, ONE), SSE), "truncated", 1),
        (Reply((ROLE, ERROR), SSE), "failed", 0),
        (Reply((b"{}",), status=503), "refused", 0),
        (Reply((), status=307, headers=(("location", "/x"),)), "refused", 0),
        (Reply(before="reset"), "unreachable", 0),
        (Reply((ROLE, ONE, "hang"), SSE), "timeout", 1),
        (Reply(("hang",), SSE), "timeout", 0),
    ],
)
async def test_answers_of_a_server(reply: Reply, ending: str, pieces: int) -> None:
    """Each is read as it is; what hangs is left after the client's patience."""
    async with Origin().script(reply) as origin:
        row = Row(flow="chat", due=0.0)
        asked = Asked(url=f"{origin.url}/v1?stream=1", headers={"x-user": "u"}, body=b'{"n":1}')
        meter = Meter(CHAT, row, asyncio.get_running_loop().time())
        await asyncio.to_thread(send, asked, meter, 0.3 if ending == "timeout" else 20.0)
        assert (row.ending, row.pieces) == (ending, pieces)
        (seen,) = origin.asked
        assert (seen.method, seen.target, seen.body) == ("POST", "/v1?stream=1", b'{"n":1}')
        assert (seen.headers["x-user"], seen.headers["connection"]) == ("u", "close")


@pytest.mark.sockets
def test_a_server_that_is_away_is_unreachable() -> None:
    """The fault is named."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        row = Row(flow="chat", due=0.0)
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        send(Asked(url=url), Meter(CHAT, row, 0.0), 5.0)
    assert (row.ending, row.code) == ("unreachable", "ConnectionRefusedError")
