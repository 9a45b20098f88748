"""Splitting streams at their frames' ends."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.wire import Dialect, FrameSplitter, FrameTooLarge, built_in, frames
from contract.wire.sse import SseDecoder

SSE, LINES, PLAIN = Dialect(), Dialect(framing="ndjson"), built_in()["text"]
ENDS = [b"\n", b"\r\n", b"\r"]


@pytest.mark.parametrize("end", ENDS, ids=["LF", "CRLF", "CR"])
def test_a_blank_line_ends_a_frame_and_belongs_to_it(end: bytes) -> None:
    """Whatever ends lines, also where pieces are single bytes."""
    frames = [b"event: a" + end + b"data: 1" + end * 2, b": c" + end * 2, b"data: 2" + end * 2]
    stream = b"".join(frames)
    assert FrameSplitter(SSE).feed(stream) == frames
    one_by_one = FrameSplitter(SSE)
    pieces = [stream[at : at + 1] for at in range(len(stream))]
    assert [frame for piece in pieces for frame in one_by_one.feed(piece)] == frames
    assert one_by_one.flush() == b""


def test_a_frame_is_out_with_its_last_byte() -> None:
    """Nothing waits for what follows, not even after a CR."""
    for end in ENDS:
        split = FrameSplitter(SSE)
        assert not split.feed(b"data: 1" + end)
        assert split.feed(end) == [b"data: 1" + end * 2]


def test_the_lf_of_a_torn_crlf_stays_with_its_frame() -> None:
    """A CRLF is one line end wherever a packet ends."""
    split = FrameSplitter(SSE)
    assert split.feed(b"data: 1\r\n\r") == []
    assert split.feed(b"\ndata: 2") == [b"data: 1\r\n\r\n"]
    assert split.flush() == b"data: 2"
    assert split.flush() == b""


def test_lines_are_frames_of_ndjson() -> None:
    """Line end included; what follows the last one is left."""
    split = FrameSplitter(LINES)
    assert split.feed(b'{"a":1}\r\n{"b"') == [b'{"a":1}\r\n']
    assert split.feed(b":2}") == []
    assert split.feed(b"\n\n{}") == [b'{"b":2}\n', b"\n"]
    assert split.flush() == b"{}"


def test_plain_text_goes_out_as_it_comes() -> None:
    """White space and all; half a character waits for its other half."""
    split = FrameSplitter(PLAIN)
    assert split.feed(b" a\r\n\r\n") == [b" a\r\n\r\n"]
    assert split.feed("é".encode()[:1]) == []
    assert split.feed("é".encode()[1:]) == ["é".encode()]
    assert split.feed(b"b" + "\U0001f600".encode()[:3]) == [b"b"]
    assert split.flush() == "\U0001f600".encode()[:3]
    assert split.flush() == b""


def test_plain_text_without_line_ends_is_no_frame_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing has to end in it."""
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", 10)
    split = FrameSplitter(PLAIN)
    assert split.feed(b"x" * 50 + b"\xc3") == [b"x" * 50]
    assert split.feed(b"x" * 50) == [b"\xc3" + b"x" * 50]


@pytest.mark.parametrize("split", [FrameSplitter(SSE), FrameSplitter(LINES)])
def test_a_frame_without_end_is_refused(
    split: FrameSplitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that never ends a frame does not fill the memory."""
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", 10)
    split.feed(b"12345")
    with pytest.raises(FrameTooLarge, match="12 bytes without the end of a frame"):
        split.feed(b"1234567")


PIECES = st.lists(
    st.sampled_from([b"data", b": ", b"x", b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n", b":"]),
    max_size=30,
)


@given(PIECES, st.lists(st.integers(0, 60), max_size=8))
def test_no_byte_is_lost_and_no_event_torn(pieces: list[bytes], cuts: list[int]) -> None:
    """Cut anywhere, the frames are what was fed and mean the same one by one."""
    stream = b"".join(pieces)
    places = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    split = FrameSplitter(SSE)
    frames = [frame for start, end in pairwise(places) for frame in split.feed(stream[start:end])]
    rest = split.flush()
    assert b"".join(frames) + rest == stream
    whole = [event.data for event in SseDecoder().feed(stream)]
    apart = [event.data for frame in (*frames, rest) for event in SseDecoder().feed(frame)]
    assert apart == whole
    assert all(len(SseDecoder().feed(frame)) <= 1 for frame in frames)
