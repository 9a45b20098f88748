"""Answers over HTTP/1.1, cut anywhere: head, body, and whether the connection is used again."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.remote.http1 import MOST_BESIDE_BODY, ResponseParser

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
SPLITS = st.lists(st.integers(1, 40), max_size=30)


@dataclass
class Read:
    """What was read of an answer."""

    parser: ResponseParser
    body: bytes


def read(wire: bytes, sizes: list[int], *, ends: bool = False) -> Read:
    """Feed an answer in pieces of these sizes, the rest byte by byte."""
    parser, body, at = ResponseParser(), b"", 0
    for size in [*sizes, *[1] * len(wire)]:
        if piece := wire[at : at + size]:
            body += parser.feed(piece)
            at += size
    if ends:
        parser.end()
    return Read(parser, body)


def chunks(*pieces: bytes, trailer: bytes = b"") -> bytes:
    """Write a chunked body."""
    coded = [b"%x;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece]
    return b"".join(coded) + b"0\r\n" + trailer + b"\r\n"


@given(st.lists(st.binary(max_size=30), max_size=6), SPLITS)
def test_a_chunked_answer_is_its_pieces(pieces: list[bytes], sizes: list[int]) -> None:
    """Wherever it is cut; extensions and trailers are ignored."""
    wire = OK + CHUNKED + b"X-A: b\r\nX-Empty:\r\n\r\n" + chunks(*pieces, trailer=b"x-t: 1\r\n")
    found = read(wire, sizes)
    assert found.body == b"".join(pieces)
    assert found.parser.complete
    assert found.parser.reusable
    assert found.parser.headers == [
        (b"transfer-encoding", b"chunked"),
        (b"x-a", b"b"),
        (b"x-empty", b""),
    ]


@given(st.binary(max_size=40), SPLITS)
def test_a_body_has_the_length_that_was_said(body: bytes, sizes: list[int]) -> None:
    """After that the connection is free; informational answers before it are passed over."""
    early = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    found = read(early + OK + b"content-length: %d\r\n\r\n" % len(body) + body, sizes)
    assert (found.body, found.parser.status, found.parser.complete) == (body, 200, True)
    assert found.parser.reusable
    assert [name for name, _ in found.parser.headers] == [b"content-length"]


@given(st.binary(max_size=40), SPLITS, st.sampled_from([b"HTTP/1.0 200 OK\r\n", OK]))
def test_a_body_may_end_with_the_connection(body: bytes, sizes: list[int], line: bytes) -> None:
    """Nothing says how long it is: the end of the connection is its end."""
    found = read(line + b"\r\n" + body, sizes, ends=True)
    assert (found.body, found.parser.complete, found.parser.fault) == (body, True, "")
    assert not found.parser.reusable


@given(st.data(), st.sampled_from([CHUNKED, b"content-length: 9\r\n"]))
def test_a_body_that_breaks_off_is_no_body(data: st.DataObject, framing: bytes) -> None:
    """What has come of it is given all the same."""
    body = chunks(b"123", b"456789") if framing is CHUNKED else b"123456789"
    wire = OK + framing + b"\r\n" + body
    cut = data.draw(st.integers(0, len(wire) - 1))
    found = read(wire[:cut], [], ends=True)
    assert not found.parser.complete
    assert found.parser.fault
    assert b"123456789".startswith(found.body)


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        OK + CHUNKED + b"\r\nzz\r\n",
        OK + b"content-length: x\r\n\r\n",
        OK + b"x: " + b"y" * MOST_BESIDE_BODY,
        OK + CHUNKED + b"\r\n0\r\nx: " + b"y" * MOST_BESIDE_BODY,
        OK + CHUNKED + b"content-length: 2\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        OK + b"content-length: 2\r\n" + CHUNKED + b"\r\n2\r\nhi\r\n0\r\n\r\n",
        OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\nhi",
        OK + b"transfer-encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        OK + b"transfer-encoding: chunked, gzip\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        OK + b"transfer-encoding: gzip\r\n\r\nhi",
        OK + b"x-a: b\r\n folded\r\ncontent-length: 0\r\n\r\n",
        OK + b"x-a: b\rset-cookie: c\r\ncontent-length: 0\r\n\r\n",
        OK + b"x-a: b\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 000 None\r\ncontent-length: 2\r\n\r\nhi",
    ],
)
def test_what_is_no_answer_is_a_fault(wire: bytes) -> None:
    """And its connection is of no further use."""
    parser = ResponseParser()
    assert not parser.feed(wire)
    assert parser.fault
    assert not parser.reusable
    assert not parser.feed(OK)


@pytest.mark.parametrize(
    ("head", "reusable"),
    [
        (OK, True),
        (OK + b"connection: close\r\n", False),
        (b"HTTP/1.0 200 OK\r\n", False),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n", True),
        (b"HTTP/1.1 204 No Content\r\n", True),
    ],
)
def test_a_connection_is_used_again_where_both_sides_mean_it(
    head: bytes, *, reusable: bool
) -> None:
    """By the version's custom, or by what was said."""
    parser = ResponseParser()
    parser.feed(head + (b"" if b"204" in head else b"content-length: 0\r\n") + b"\r\n")
    assert parser.complete
    assert parser.reusable is reusable


@pytest.mark.parametrize("more", [b"x", OK + b"content-length: 0\r\n\r\n"])
@pytest.mark.parametrize("together", [True, False])
def test_what_nobody_has_asked_for_spoils_the_connection(more: bytes, *, together: bool) -> None:
    """The next answer on it could belong to any request."""
    parser = ResponseParser()
    wire = OK + b"content-length: 2\r\n\r\nab"
    bodies = [parser.feed(wire + more)] if together else [parser.feed(wire), parser.feed(more)]
    assert b"".join(bodies) == b"ab"
    assert parser.complete
    assert not parser.reusable


@given(st.integers(0, 40), SPLITS)
def test_an_answer_nobody_asked_for_is_nobodys(size: int, sizes: list[int]) -> None:
    """It stands behind the one that was asked for, and its body in neither."""
    second = OK + b"content-length: %d\r\n\r\n" % size + b"x" * size
    found = read(OK + CHUNKED + b"\r\n" + chunks(b"hello") + second, sizes)
    assert (found.body, found.parser.complete, found.parser.reusable) == (b"hello", True, False)
