"""Lines of JSON and plain text, whatever the pieces they arrive in."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutover.wire import BlockTooLong, LineSplitter, TextSplitter, payload

BOM = b"\xef\xbb\xbf"


def split(splitter: LineSplitter | TextSplitter, *pieces: bytes) -> list[bytes]:
    """Split the pieces one after the other, to the end."""
    found = [one for piece in pieces for one in splitter.feed(piece)]
    return found + splitter.flush()


LINES = {
    "LF and CRLF end a line": [b'{"a":1}\n', b"2\r\n", b"3\n"],
    "a CR alone ends nothing: to JSON it is white space": [b'{"a":\r1}\n'],
    "no other character ends a line": ['"\u2028\u2029\x85"\n'.encode()],
    "a last line counts without its end": [b"1\n", b"2"],
    "blank lines are lines": [b"\n", b"\r\n", b" \n", b"1\n"],
    "a byte order mark stays": [BOM + b"1\n", BOM + b"2\n"],
    "invalid UTF-8 stays": [b'"\xff"\n'],
    "nothing is no line": [],
}


@pytest.mark.parametrize("due", LINES.values(), ids=LINES)
def test_lines_have_their_ends_wherever_the_stream_is_cut(due: list[bytes]) -> None:
    """In one piece, and in two pieces at each byte."""
    stream = b"".join(due)
    assert split(LineSplitter(), stream) == due
    for at in range(len(stream)):
        assert split(LineSplitter(), stream[:at], stream[at:]) == due, at


@pytest.mark.parametrize(
    ("line", "content"),
    [(b'{"a":1}\r\n', b'{"a":1}'), (BOM + b"1", b"1"), (b" \t\r\n", b""), (b"\x0c\n", b"\x0c")],
)
def test_the_payload_of_a_line_has_no_white_space_around(line: bytes, content: bytes) -> None:
    """A line without one is a keep-alive; a form feed is no white space of JSON."""
    assert payload(line) == content


def test_a_line_beyond_the_limit_is_refused() -> None:
    """A stream that never ends a line does not fill the memory."""
    splitter = LineSplitter(limit=4)
    assert splitter.feed(b"123\n1234") == [b"123\n"]
    with pytest.raises(BlockTooLong, match="more than 4 bytes"):
        splitter.feed(b"5")


def test_a_text_goes_out_as_it_comes_and_tears_no_character() -> None:
    """Half a character waits for its other half."""
    splitter = TextSplitter()
    assert splitter.feed(b" a\r\n\r\n") == [b" a\r\n\r\n"]
    assert splitter.feed("é".encode()[:1]) == []
    assert splitter.feed("é".encode()[1:]) == ["é".encode()]
    assert splitter.feed(b"b" + "\U0001f600".encode()[:3]) == [b"b"]
    assert splitter.flush() == ["\U0001f600".encode()[:3]]
    assert splitter.flush() == []


@given(st.text(max_size=20).map(str.encode) | st.binary(max_size=20), st.lists(st.integers(0, 40)))
def test_no_byte_is_lost_and_valid_text_stays_valid(stream: bytes, cuts: list[int]) -> None:
    """Cut anywhere, the pieces are what was fed; each piece of a text is a text."""
    places = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(places)]
    found = split(TextSplitter(), *pieces)
    assert b"".join(found) == stream
    assert b"".join(split(LineSplitter(), *pieces)) == stream
    if stream.decode("utf-8", "replace").encode() == stream:
        assert "".join(piece.decode() for piece in found) == stream.decode()
