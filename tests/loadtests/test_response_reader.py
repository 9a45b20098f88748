"""HTTP responses are read as they arrive and judged by their own framing."""

from __future__ import annotations

import pytest

from contract.flows.chat import CHAT, Accept, End, Send, StartReply, Success
from loadtests.meter import Planned, ResponseReader, StreamMeter
from loadtests.rows import LoadRow

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
