"""The decoder against WHATWG HTML, "Interpreting an event stream", rule by rule."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contract.wire.sse import SseDecoder, SseEvent, comment, is_comment

BOM = b"\xef\xbb\xbf"


def decoded(*pieces: bytes) -> list[SseEvent]:
    """Decode the pieces one after the other, to the end."""
    decoder = SseDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.flush()


def comments(*pieces: bytes) -> int:
    """Count the pieces' comments."""
    decoder = SseDecoder()
    for piece in pieces:
        decoder.feed(piece)
    return decoder.keepalives


def data(*pieces: bytes) -> list[bytes]:
    """Return the data of the pieces' events."""
    return [event.data for event in decoded(*pieces)]


def by_the_book(stream: bytes) -> list[SseEvent]:
    """Decode a whole stream as the standard words it: slowly, on text, line by line."""
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]
    events: list[SseEvent] = []
    buffer = kind = last_id = ""
    retry: int | None = None
    for line in lines:
        name, colon, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if buffer:
                events.append(SseEvent(buffer.removesuffix("\n").encode(), kind, last_id, retry))
                retry = None
            buffer = kind = ""
        elif colon and not name:
            continue
        elif name == "data":
            buffer += value + "\n"
        elif name == "event":
            kind = value
        elif name == "id" and "\0" not in value:
            last_id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            retry = int(value)
    return events


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"], ids=["LF", "CR", "CRLF"])
def test_each_line_end_ends_a_line(end: bytes) -> None:
    """LF, CR and CRLF are one line end each."""
    assert data(b"data: a" + end + b"data: b" + end + end) == [b"a\nb"]


def test_a_crlf_split_over_two_pieces_is_one_line_end() -> None:
    """The LF that follows a CR belongs to it, whenever it arrives."""
    assert data(b"data: a\r", b"\ndata: b\r", b"", b"\n\r", b"\n") == [b"a\nb"]


def test_an_event_ended_by_cr_does_not_wait_for_a_line_feed() -> None:
    """A CR ends the line at once; whether an LF follows is not known yet and does not matter."""
    assert SseDecoder().feed(b"data: a\r\r") == [SseEvent(b"a")]


def test_cr_lf_cr_is_two_line_ends() -> None:
    """CRLF then CR: the second one ends an empty line."""
    assert data(b"data: a\r\n\r") == [b"a"]


@pytest.mark.parametrize("pieces", [(BOM + b"data: a\n\n",), (BOM[:1], BOM[1:], b"data: a\n\n")])
def test_one_byte_order_mark_at_the_start_is_skipped(pieces: tuple[bytes, ...]) -> None:
    """Whole, or cut in two."""
    assert data(*pieces) == [b"a"]


def test_a_second_byte_order_mark_is_part_of_the_field_name() -> None:
    """Only one is skipped; so the field is none we know."""
    assert data(BOM + BOM + b"data: a\n\n") == []


def test_half_a_byte_order_mark_is_text() -> None:
    """What only begins like one is kept."""
    assert data(BOM[:2], b"\ndata: a\n\n") == [b"a"]


def test_one_leading_space_is_stripped() -> None:
    """One, and only a space."""
    assert data(b"data:a\n\ndata:  b\n\ndata:\tc\n\n") == [b"a", b" b", b"\tc"]


def test_several_data_lines_are_joined_by_line_feeds() -> None:
    """Without one at the end."""
    assert data(b"data: a\ndata:\ndata: b\n\n") == [b"a\n\nb"]


def test_data_without_a_colon_is_an_empty_line_of_data() -> None:
    """The standard's own example: two events, then one that is not ended."""
    assert data(b"data\n\ndata\ndata\n\ndata:") == [b"", b"\n"]


def test_everything_after_the_first_colon_is_the_value() -> None:
    """Colons in the value are its own."""
    assert data(b"data: a: b\n\n") == [b"a: b"]


def test_comments_are_counted_and_skipped() -> None:
    """In an event or between two."""
    decoder = SseDecoder()
    events = decoder.feed(b": one\n\n:\ndata: a\n:two\ndata: b\n\n")
    assert events == [SseEvent(b"a\nb")]
    assert decoder.keepalives == 3


def test_unknown_fields_and_other_cases_are_ignored() -> None:
    """Field names are compared exactly."""
    assert data(b"Data: a\nfoo: b\n data: c\ndata: d\n\n") == [b"d"]


def test_the_name_of_an_event_holds_for_one_event() -> None:
    """Also for one that was not dispatched."""
    events = decoded(b"event: a\ndata: 1\n\ndata: 2\n\nevent: b\n\ndata: 3\n\n")
    assert [event.event for event in events] == ["a", "", ""]


def test_the_last_name_wins() -> None:
    """An empty one too."""
    events = decoded(b"event: a\nevent: b\ndata: 1\n\nevent: a\nevent\ndata: 2\n\n")
    assert [event.event for event in events] == ["b", ""]


def test_an_id_holds_until_the_next() -> None:
    """An empty one resets it."""
    events = decoded(b"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n")
    assert [event.id for event in events] == ["1", "1", ""]


def test_an_id_with_nul_is_ignored() -> None:
    """The one before stays."""
    assert decoded(b"id: 1\ndata: a\n\nid: 2\x003\ndata: b\n\n")[1].id == "1"


def test_an_id_without_data_dispatches_no_event_and_is_remembered() -> None:
    """Nothing is dispatched; the next event has the id."""
    assert decoded(b"id: 7\n\ndata: a\n\n") == [SseEvent(b"a", id="7")]


@pytest.mark.parametrize("value", [b"1s", b"-1", b"", b" 1", "٣".encode(), b"1.5"])
def test_retry_takes_ascii_digits_only(value: bytes) -> None:
    """Anything else is ignored."""
    assert decoded(b"retry: " + value + b"\ndata: a\n\n")[0].retry is None


def test_retry_comes_with_the_next_event() -> None:
    """In milliseconds, once."""
    events = decoded(b"retry: 10\n\ndata: a\n\ndata: b\n\n")
    assert [event.retry for event in events] == [10, None]


def test_a_retry_of_absurd_length_is_ignored() -> None:
    """Python refuses to convert more than 4300 digits: no reason to lose the stream."""
    assert decoded(b"retry: " + b"9" * 5000 + b"\ndata: a\n\n") == [SseEvent(b"a")]


def test_an_event_without_data_is_not_dispatched() -> None:
    """Blank lines, comments and names alone make none."""
    assert decoded(b"\n\n\nevent: a\n\n: c\n\n") == []


@pytest.mark.parametrize("tail", [b"data: b", b"data: b\n", b"data: b\r"])
def test_an_event_that_is_not_ended_is_dropped(tail: bytes) -> None:
    """The stream ended before its blank line."""
    assert data(b"data: a\n\n" + tail) == [b"a"]


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c"])
def test_no_other_character_ends_a_line(character: str) -> None:
    """Python's `splitlines` would split here."""
    text = f"a{character}b"
    assert data(f"data: {text}\n\n".encode()) == [text.encode()]


def test_invalid_utf8_is_replaced() -> None:
    """In the data when it is read as text, in names and ids at once."""
    event = decoded(b"event: \xff\nid: \xfe\ndata: a\xff\n\n")[0]
    assert (event.event, event.id, event.text) == ("\ufffd", "\ufffd", "a\ufffd")


def test_a_comment_is_a_frame_of_no_event() -> None:
    """What `comment` writes, `is_comment` knows and the decoder passes over."""
    frame = comment("served-by legacy")
    assert frame == b": served-by legacy\n\n"
    assert is_comment(frame)
    assert not is_comment(b"data: a\n\n")
    assert decoded(frame) == []


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [SseEvent(b"YHOO\n+2\n10")]),
        (
            (
                b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\n"
                b"data:  third event\n\n"
            ),
            [
                SseEvent(b"first event", id="1"),
                SseEvent(b"second event"),
                SseEvent(b" third event"),
            ],
        ),
        (b"data\n\ndata\ndata\n\ndata:", [SseEvent(b""), SseEvent(b"\n")]),
        (b"data:test\n\ndata: test\n\n", [SseEvent(b"test"), SseEvent(b"test")]),
    ],
)
def test_the_examples_of_the_standard(stream: bytes, events: list[SseEvent]) -> None:
    """All four, as they stand there."""
    assert decoded(stream) == events


def test_a_character_cut_by_a_line_end_is_replaced_and_the_line_still_ends() -> None:
    """No byte of a multi-byte sequence is taken for a line end, nor a line end for one of them."""
    assert [event.text for event in decoded(b"data: \xe4\xbb\ndata: \x8a\n\n")] == [
        "\ufffd\n\ufffd"
    ]


def test_an_unterminated_event_is_dropped() -> None:
    """The end of the stream discards lines and data alike, however often it is said."""
    decoder = SseDecoder()
    decoder.feed(b"data: a\ndata: b")
    assert decoder.flush() == decoder.flush() == []


EVERY_RULE = (
    BOM + b"event: a\r\nid: 1\rdata: x\ndata: \xe2\x82\xac\r\n\r\n: c\r\rretry: 3\n\ndata\n\n"
    b"id: \x00\r\ndata:  y\r\ndata\r\n\r\nunknown: z\n\ndata: unended"
)


@pytest.mark.parametrize("cut", range(len(EVERY_RULE) + 1))
def test_a_cut_at_any_byte_changes_nothing(cut: int) -> None:
    """One stream with every rule in it, cut in two at each byte."""
    assert decoded(EVERY_RULE[:cut], EVERY_RULE[cut:]) == by_the_book(EVERY_RULE)


def test_byte_by_byte_changes_nothing() -> None:
    """The smallest pieces there are."""
    assert decoded(*(bytes([byte]) for byte in EVERY_RULE)) == by_the_book(EVERY_RULE)


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


@given(cut_streams())
@example((b"data: a\r\n\r\n", [b"data: a\r", b"", b"\n\r", b"\n"]))
def test_any_stream_in_any_pieces_is_what_the_standard_says(
    cut: tuple[bytes, list[bytes]],
) -> None:
    """The same events however the stream is cut, line ends mixed; texts as the book has them."""
    stream, pieces = cut
    events = decoded(*pieces)
    assert events == decoded(stream)
    assert comments(*pieces) == comments(stream)
    book = [(event.text, event.event, event.id, event.retry) for event in by_the_book(stream)]
    assert [(event.text, event.event, event.id, event.retry) for event in events] == book
