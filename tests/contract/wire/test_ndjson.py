"""Lines of JSON, whatever the pieces they arrive in."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.wire.ndjson import NdjsonDecoder

BOM = b"\xef\xbb\xbf"


def decoded(*pieces: bytes) -> list[bytes]:
    """Decode the pieces one after the other, to the end."""
    decoder = NdjsonDecoder()
    lines = [line for piece in pieces for line in decoder.feed(piece)]
    return lines + decoder.flush()


RULES = {
    "LF and CRLF end a line": ([b"1\n2\r\n3\n"], [b"1", b"2", b"3"]),
    "a CRLF split over two pieces is one line end": ([b"1\r", b"\n2"], [b"1", b"2"]),
    "a CR alone ends nothing: to JSON it is white space": ([b'{"a":\r1}\n'], [b'{"a":\r1}']),
    "no other character ends a line, as for `splitlines`": (
        ['"\u2028\u2029\x85"\n'.encode()],
        ['"\u2028\u2029\x85"'.encode()],
    ),
    "a last line counts without its end, which many writers leave out": (
        [b"1\n2"],
        [b"1", b"2"],
    ),
    "also where half of its end is there": ([b"1\n2\r"], [b"1", b"2"]),
    "a torn line is passed on to show itself": ([b'{"a":1}\n{"a":'], [b'{"a":1}', b'{"a":']),
    "blanks at the end are no line": ([b"1\n  "], [b"1"]),
    "nothing is no line": ([b""], []),
    "one byte order mark at the start is skipped": (
        [BOM + b"1\n" + BOM + b"2\n"],
        [b"1", BOM + b"2"],
    ),
    "a byte order mark in pieces is skipped": ([BOM[:1], BOM[1:] + b"1"], [b"1"]),
    "a byte order mark on a line of its own is skipped": ([BOM + b"\n1\n"], [b"1"]),
    "a byte order mark alone is no line": ([BOM], []),
    "invalid UTF-8 stays: decoding the line reports it": ([b'"\xff"\n'], [b'"\xff"']),
}


@pytest.mark.parametrize(("pieces", "lines"), RULES.values(), ids=RULES)
def test_a_rule_of_lines(pieces: list[bytes], lines: list[bytes]) -> None:
    """Each by its name, on the shortest stream that shows it."""
    assert decoded(*pieces) == lines


@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b" \t\n"])
def test_blank_lines_are_keep_alives(blank: bytes) -> None:
    """Counted, not passed on."""
    decoder = NdjsonDecoder()
    assert decoder.feed(blank + b"1\n" + blank + blank) == [b"1"]
    assert decoder.keepalives == 3


def test_flushing_ends_the_stream_once() -> None:
    """The tail is given out once."""
    decoder = NdjsonDecoder()
    decoder.feed(b"1")
    assert decoder.flush() == [b"1"]
    assert decoder.flush() == []


def by_the_book(stream: bytes) -> list[bytes]:
    """Cut a whole stream at its line ends."""
    lines = stream.removeprefix(BOM).split(b"\n")
    return [line.removesuffix(b"\r") for line in lines if line.strip(b" \t\r\n")]


@st.composite
def cut_streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """Draw a stream and the same stream in pieces."""
    parts = st.sampled_from([b"1", b"\n", b"\r", b"\r\n", b" ", BOM, "é".encode(), b"\xff", b"{"])
    stream = b"".join(draw(st.lists(parts, max_size=24)))
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    return stream, [stream[a:b] for a, b in pairwise([0, *cuts, len(stream)])]


@given(cut_streams())
def test_the_pieces_do_not_matter(cut: tuple[bytes, list[bytes]]) -> None:
    """The same lines however the stream is cut."""
    stream, pieces = cut
    assert decoded(*pieces) == decoded(stream) == by_the_book(stream)
