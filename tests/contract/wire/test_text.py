"""Plain text in pieces of whole characters, whatever the pieces it arrives in."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.wire import EventDecoder, FrameReader, FrameSplitter, WireReader, built_in
from contract.wire.text import TextDecoder, torn

TEXT = built_in()["text"]
PARTS = st.sampled_from(
    ["a", " ", "\r\n", "é", "\u4e2d", "\U0001f600", "\ufeff", "data: ", "[DONE]", "{}", "\0"]
).map(str.encode) | st.binary(min_size=1, max_size=4)


@st.composite
def cut(draw: st.DrawFn, parts: st.SearchStrategy[bytes]) -> tuple[bytes, list[bytes]]:
    """Draw bytes and the same bytes in pieces."""
    stream = b"".join(draw(st.lists(parts, max_size=16)))
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    return stream, [stream[a:b] for a, b in pairwise([0, *cuts, len(stream)])]


@given(cut(PARTS))
def test_no_byte_is_lost_or_changed(drawn: tuple[bytes, list[bytes]]) -> None:
    """Also of what is no text at all; both ways of cutting give the same pieces."""
    stream, pieces = drawn
    decoder, splitter = TextDecoder(), FrameSplitter(TEXT)
    decoded = [piece for one in pieces for piece in decoder.feed(one)] + decoder.flush()
    assert b"".join(decoded) == stream
    assert all(decoded)
    split = [frame for one in pieces for frame in splitter.feed(one)]
    rest = splitter.flush()
    assert [*split, *([rest] if rest else [])] == decoded
    assert (decoder.flush(), decoder.keepalives) == ([], 0)


@given(cut(st.text(min_size=1, max_size=4).map(lambda text: text.encode("utf-8", "ignore"))))
def test_no_character_is_torn(drawn: tuple[bytes, list[bytes]]) -> None:
    """Every piece of a text is a text, and nothing whole is held back."""
    stream, pieces = drawn
    decoder = TextDecoder()
    fed = given_out = b""
    for piece in pieces:
        fed += piece
        for one in decoder.feed(piece):
            one.decode()
            given_out += one
        assert len(fed) - len(given_out) <= 3
        assert fed.decode("utf-8", "ignore").encode() == given_out
    assert decoder.flush() == []
    assert given_out == stream


@given(cut(PARTS))
def test_the_text_is_the_same_however_it_is_cut(drawn: tuple[bytes, list[bytes]]) -> None:
    """Its events are pieces of the answer, and nothing in it ends or fails a stream."""
    stream, pieces = drawn
    reader = WireReader(EventDecoder(TEXT))
    events = [event for piece in pieces for event in reader.feed(piece)] + reader.flush()
    assert b"".join(event.data for event in events) == stream
    assert not any(event.ends or event.malformed or event.literal for event in events)
    assert {event.failure for event in events} <= {None}
    if stream.decode("utf-8", "ignore").encode() == stream:
        assert "".join(event.text() or "" for event in events) == stream.decode()


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 0),
        (b"a", 0),
        ("é".encode(), 0),
        ("é".encode()[:1], 1),
        (b"a" + "\u4e2d".encode()[:2], 2),
        ("\U0001f600".encode()[:3], 3),
        ("\U0001f600".encode(), 0),
        (b"\x80\x80\x80\x80", 0),
        (b"\xff", 0),
        (b"\xe4a", 0),
    ],
)
def test_what_is_torn_is_counted(data: bytes, count: int) -> None:
    """At most three bytes, and none of what is no character."""
    assert torn(data) == count


def test_any_piece_is_an_event_and_none_is_looked_at() -> None:
    """White space, too: it is text, and keeps no connection alive."""
    reader = FrameReader(TEXT)
    assert [reader.is_event(frame) for frame in (b"\n", b" ", b"a", b"")] == [True] * 3 + [False]
    assert list(reader.suspects([b"[DONE]", b"error", b"{}"])) == []
    assert [reader.notable(frame) for frame in (b"[DONE]", b'{"error":"x"}', b"")] == [None] * 3
    event = reader.event(b" a\n")
    assert event is not None
    assert (event.text(), event.name) == (" a\n", "message")


def test_growing_text_is_seen() -> None:
    """Each piece makes it longer."""
    reader = WireReader(EventDecoder(TEXT))
    assert [reader.grown(event) for event in reader.feed(b"a") + reader.feed(b"b")] == [
        {"text"},
        {"text"},
    ]
