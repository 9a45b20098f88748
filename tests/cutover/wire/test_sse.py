"""The decoder against WHATWG HTML, "Interpreting an event stream", rule by rule."""

import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cutover.wire import BlockTooLong, SseEvent, SseSplitter, comment, events

BOM = b"\xef\xbb\xbf"


def by_the_book(stream: bytes) -> list[SseEvent]:
    """Decode a whole stream as the standard words it: slowly, on text, line by line."""
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]
    found: list[SseEvent] = []
    buffer = kind = ""
    for line in lines:
        name, colon, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if buffer:
                found.append(SseEvent(buffer.removesuffix("\n").encode(), kind))
            buffer = kind = ""
        elif colon and not name:
            continue
        elif name == "data":
            buffer += value + "\n"
        elif name == "event":
            kind = value
    return found


DATA = tomllib.loads(Path(__file__).with_name("sse.toml").read_text("utf-8"))
RULES = {
    name: (stream.encode(), [SseEvent(data.encode(), *event) for data, *event in due])
    for name, (stream, due) in DATA["rules"].items()
} | {
    "half a byte order mark is text": (BOM[:2] + b"\ndata: a\n\n", [SseEvent(b"a")]),
    "invalid UTF-8 is replaced in names": (
        b"event: \xff\ndata: a\xff\n\n",
        [SseEvent(b"a\xff", "\ufffd")],
    ),
}


@pytest.mark.parametrize(("stream", "due"), RULES.values(), ids=RULES)
def test_a_rule_of_the_standard(stream: bytes, due: list[SseEvent]) -> None:
    """Each by its name, on the shortest stream that shows it."""
    assert events(stream) == due


def test_a_comment_is_a_frame_of_no_event() -> None:
    """What `comment` writes, the decoder passes over."""
    frame = comment("served-by legacy")
    assert frame == b": served-by legacy\n\n"
    assert events(frame) == []


def test_a_character_cut_by_a_line_end_stays_cut_and_the_line_still_ends() -> None:
    """No byte of a multi-byte sequence is taken for a line end, nor a line end for one of them."""
    assert events(b"data: a\xff\n\n") == [SseEvent(b"a\xff")]
    assert events(b"data: \xe4\xbb\ndata: \x8a\n\n") == [SseEvent(b"\xe4\xbb\n\x8a")]


LINES = st.sampled_from(
    (
        *(b"", b"", b"data", b"data: ", b"data:a", b"data: \xc3\xa9", b"event: e", b"event"),
        *(b"id: 1", b"id: \x00", b"id", b"retry: 12", b"retry: x", b": c", b":", b"other: o"),
        BOM + b"data: b",
    )
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
STREAMS = st.builds(
    lambda bom, lines: bom + b"".join(line + end for line, end in lines),
    st.sampled_from([b"", BOM, BOM[:2]]),
    st.lists(st.tuples(LINES, ENDS), max_size=20),
)


@st.composite
def cut_streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """Draw a stream and the same stream in pieces."""
    stream = draw(STREAMS | st.binary(max_size=60))
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    return stream, [stream[a:b] for a, b in pairwise([0, *cuts, len(stream)])]


@given(STREAMS | st.binary(max_size=60))
def test_any_stream_is_what_the_standard_says(stream: bytes) -> None:
    """Line ends mixed; texts as the book has them."""
    texts = [(one.data.decode("utf-8", "replace"), one.event) for one in events(stream)]
    assert texts == [(one.data.decode(), one.event) for one in by_the_book(stream)]


def blocks(*pieces: bytes) -> list[bytes]:
    """Split the pieces one after the other, to the end."""
    splitter = SseSplitter()
    found = [block for piece in pieces for block in splitter.feed(piece)]
    return found + splitter.flush()


BLOCKS = {name: [one.encode() for one in due] for name, due in DATA["blocks"].items()}


@pytest.mark.parametrize("due", BLOCKS.values(), ids=BLOCKS)
def test_blocks_are_whole_events_with_their_ends_wherever_the_stream_is_cut(
    due: list[bytes],
) -> None:
    """In one piece, byte by byte, and in two pieces at each byte."""
    stream = b"".join(due)
    assert blocks(stream) == due
    assert blocks(*(bytes([byte]) for byte in stream)) == due
    for at in range(len(stream)):
        assert blocks(stream[:at], b"", stream[at:]) == due, at


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_a_block_is_out_with_its_last_byte(end: bytes) -> None:
    """A streamed event does not wait for the next one."""
    splitter = SseSplitter()
    assert splitter.feed(b"data: 1" + end + end[:-1]) == []
    assert splitter.feed(end[-1:]) == [b"data: 1" + end * 2]


@given(cut_streams())
@example((b"data: a\r\r\n", [b"data: a\r", b"\r", b"\n"]))
def test_blocks_are_the_input_do_not_depend_on_its_cuts_and_tear_no_event(
    cut: tuple[bytes, list[bytes]],
) -> None:
    """Joined they are what was fed; decoded one by one they mean what the stream means."""
    stream, pieces = cut
    found = blocks(*pieces)
    assert found == blocks(stream)
    assert b"".join(found) == stream
    assert all(found)
    each = [events(block) for block in found]
    assert all(len(one) <= 1 for one in each)
    assert [event.data for one in each for event in one] == [e.data for e in events(stream)]


@pytest.mark.parametrize("tail", [b"", b"\n\n", b"\n\ndata: 2\n\n"], ids=["open", "ended", "more"])
@pytest.mark.parametrize("at", range(9, 25))
def test_a_block_beyond_the_limit_is_refused_with_the_limit(tail: bytes, at: int) -> None:
    """What came before it is kept, also where it came with it, in one read."""
    splitter, stream = SseSplitter(limit=12), b"data: 1\n\ndata: 2345678" + tail
    assert splitter.feed(stream[:at]) == [b"data: 1\n\n"]
    with pytest.raises(BlockTooLong, match="more than 12 bytes"):
        splitter.feed(stream[at:]) if stream[at:] else splitter.flush()


def test_a_block_as_long_as_the_limit_passes() -> None:
    """The limit is the longest block, its end included."""
    assert SseSplitter(limit=9).feed(b"data: 1\n\n") == [b"data: 1\n\n"]


def test_a_block_of_megabytes_in_small_pieces_is_not_searched_anew_with_each() -> None:
    """Searching from the start each time would read 16 GB here."""
    splitter = SseSplitter()
    piece = b"data: " + b"x" * 1000 + b"\n"
    for _ in range(8000):
        assert not splitter.feed(piece)
    assert splitter.feed(b"\n") == [piece * 8000 + b"\n"]
