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


def test_lf_and_crlf_end_a_line() -> None:
    """Also when the CRLF is split over two pieces."""
    assert decoded(b'{"a":1}\n{"a":2}\r\n{"a":3}\r', b"\n") == [b'{"a":1}', b'{"a":2}', b'{"a":3}']


def test_a_cr_alone_ends_nothing() -> None:
    """To JSON it is white space."""
    assert decoded(b'{"a":\r1}\n') == [b'{"a":\r1}']


@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b" \t\n"])
def test_blank_lines_are_keep_alives(blank: bytes) -> None:
    """Counted, not passed on."""
    decoder = NdjsonDecoder()
    assert decoder.feed(blank + b"1\n" + blank + blank) == [b"1"]
    assert decoder.keepalives == 3


def test_a_last_line_without_its_end_counts() -> None:
    """Many writers leave the last line end out."""
    assert decoded(b"1\n2") == [b"1", b"2"]
    assert decoded(b"1\n2\r") == [b"1", b"2"]


def test_a_torn_line_is_passed_on_to_show_itself() -> None:
    """An object that was cut short is no JSON."""
    assert decoded(b'{"a":1}\n{"a":') == [b'{"a":1}', b'{"a":']


def test_blanks_at_the_end_are_no_line() -> None:
    """With or without an end."""
    assert decoded(b"1\n  ") == [b"1"]
    assert decoded(b"") == []


def test_flushing_ends_the_stream_once() -> None:
    """The tail is given out once."""
    decoder = NdjsonDecoder()
    decoder.feed(b"1")
    assert decoder.flush() == [b"1"]
    assert decoder.flush() == []


def test_one_byte_order_mark_at_the_start_is_skipped() -> None:
    """Whole or cut, in a first line that ends or does not; later ones are the reader's trouble."""
    assert decoded(BOM + b"1\n" + BOM + b"2\n") == [b"1", BOM + b"2"]
    assert decoded(BOM[:1], BOM[1:] + b"1") == [b"1"]
    assert decoded(BOM + b"\n1\n") == [b"1"]
    assert decoded(BOM) == []


def test_invalid_utf8_is_passed_on_as_it_is() -> None:
    """Decoding the line reports them."""
    assert decoded(b'"\xff"\n') == [b'"\xff"']


def test_no_other_character_ends_a_line() -> None:
    """Python's `splitlines` would split here."""
    text = '"\u2028\u2029\x85"'.encode()
    assert decoded(text + b"\n") == [text]


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
