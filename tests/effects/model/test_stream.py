"""The assembler: chunks from bytes cut anywhere, and the verdict at the end."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.faults import Fault
from contract.model import Chunk, RawChunk, Usage
from effects.model.stream import MOST_BYTES, RawAssembler, StreamAssembler
from tests.effects.model.loopback import delta, finish, sse, usage

DONE = b"data: [DONE]\n\n"


def stream(*events: object) -> bytes:
    """Encode events, each a JSON value or bytes that stand for themselves."""
    return b"".join(event if isinstance(event, bytes) else sse(event) for event in events)


def assembled(*pieces: bytes) -> tuple[list[Chunk], Fault | None, int]:
    """Return chunks, verdict and how many events were malformed."""
    assembler = StreamAssembler()
    chunks = [chunk for piece in pieces for chunk in assembler.feed(piece)]
    return chunks, assembler.end(), assembler.malformed


def verdict(*events: object) -> Fault | None:
    """Return the verdict on a whole stream."""
    return assembled(stream(*events))[1]


def test_a_whole_answer() -> None:
    """The model's name comes with the first chunk that says something, and once."""
    body = stream(delta(role="assistant", content=""), delta(content="Hi"), delta(content="!"))
    chunks, fault, _ = assembled(body + stream(finish(), usage(3, 2), DONE))
    assert chunks == [
        Chunk(text="Hi", model="loop-1"),
        Chunk(text="!"),
        Chunk(finish="stop"),
        Chunk(usage=Usage(3, 2, 5)),
    ]
    assert fault is None


def test_what_repeats_itself_is_said_once() -> None:
    """Some providers send finish reason and usage twice."""
    both = {**usage(3, 2), "choices": finish()["choices"]}
    chunks, _, _ = assembled(stream(finish(), both, both, DONE))
    assert chunks == [Chunk(finish="stop", model="loop-1"), Chunk(usage=Usage(3, 2, 5))]


def test_a_stream_without_end_is_ended() -> None:
    """Whether it speaks all the time or never ends its first line."""
    said = sse(delta(content="y" * (1 << 20)))
    for piece in (said, b"z" * (1 << 20)):
        assembler = StreamAssembler()
        for _ in range(MOST_BYTES // len(piece)):
            assembler.feed(piece)
        assert assembler.fault is None
        assert assembler.feed(piece) == assembler.feed(piece) == []
        assert assembler.end() == Fault("model_error", data={"type": "endless"})


def test_another_model_is_told() -> None:
    """A gateway may change models in between."""
    chunks, _, _ = assembled(stream(delta(content="a"), {**delta(content="b"), "model": "x"}))
    assert [chunk.model for chunk in chunks] == ["loop-1", "x"]


def test_done_is_complete() -> None:
    """Also without a finish reason."""
    assert verdict(delta(content="Hi"), DONE) is None


def test_a_finish_reason_without_done_is_complete() -> None:
    """Not every provider sends `[DONE]`."""
    assert verdict(delta(content="Hi"), finish()) is None


@pytest.mark.parametrize("events", [[], [delta(content="Hi")], [delta(content="Hi"), usage(1, 1)]])
def test_an_end_without_either_is_a_truncation(events: list[object]) -> None:
    """Text alone proves nothing."""
    assert verdict(*events) == Fault("model_truncated", retryable=True, data={"malformed": 0})


def test_an_unended_event_does_not_count() -> None:
    """`[DONE]` without its blank line was cut."""
    fault = assembled(stream(delta(content="Hi")) + b"data: [DONE]")[1]
    assert fault is not None
    assert fault.code == "model_truncated"


def test_a_malformed_chunk_is_passed_over_and_counted() -> None:
    """The rest is fine."""
    body = stream(delta(content="a"), b"data: {nope\n\n", delta(content="b"), finish(), DONE)
    chunks, fault, malformed = assembled(body)
    assert ("".join(chunk.text for chunk in chunks), fault, malformed) == ("ab", None, 1)


def test_comments_are_no_chunks() -> None:
    """Keep-alives between events."""
    chunks, fault, malformed = assembled(stream(b": PROCESSING\n\n", delta(content="a"), DONE))
    assert (len(chunks), fault, malformed) == (1, None, 0)


@pytest.mark.parametrize(
    "event",
    [
        {"error": {"code": "x", "message": "secret"}},
        {"error": "secret"},
        {**delta(content="late"), "error": {"code": "x"}},
        {"choices": [{"delta": {"content": "late"}, "error": {"code": "x"}}]},
        finish("error"),
        b'event: error\ndata: {"message":"secret"}\n\n',
    ],
)
def test_an_error_inside_is_an_error(event: object) -> None:
    """Wherever it stands; its chunk and all after it are dropped, its sentence is not kept."""
    chunks, fault, _ = assembled(stream(delta(content="a"), event, delta(content="b"), DONE))
    assert [chunk.text for chunk in chunks] == ["a"]
    assert fault is not None
    assert fault.code == "model_error"
    assert "secret" not in repr(fault)


def test_an_error_after_the_finish_reason_is_an_error() -> None:
    """Recorded from a provider that stopped at a token limit."""
    fault = verdict(delta(content="a"), finish("length"), {"error": {"code": 400}}, DONE)
    assert fault == Fault("model_error", data={"code": 400})


def test_nothing_after_done_counts() -> None:
    """The stream is over."""
    chunks, fault, _ = assembled(stream(delta(content="a"), DONE, delta(content="b"), b"data: x"))
    assert ([chunk.text for chunk in chunks], fault) == (["a"], None)


EVENTS = st.lists(
    st.one_of(
        st.builds(delta, content=st.text(max_size=3)),
        st.builds(delta, reasoning=st.text(max_size=3)),
        st.sampled_from(
            [
                delta(tool_calls=[{"id": "a", "function": {"name": "f", "arguments": "{"}}]),
                delta(tool_calls=[{"function": {"arguments": "}"}}]),
                finish(),
                usage(1, 2),
                {"error": {"code": 500}},
                b"data: nope\n\n",
                b": comment\n\n",
                b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\r\n\r\n',
                DONE,
            ]
        ),
    ),
    max_size=8,
)


@given(EVENTS, st.data())
def test_any_cut_gives_the_same_chunks(events: list[object], data: st.DataObject) -> None:
    """Chunks, verdict and count do not depend on how the bytes arrive."""
    body = stream(*events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=10)))
    pieces = [body[start:end] for start, end in pairwise([0, *cuts, len(body)])]
    assert assembled(*pieces) == assembled(body)


def raw_of(*datas: bytes) -> list[Chunk]:
    """Feed events to the assembler that keeps their data."""
    assembler = RawAssembler()
    return [chunk for data in datas for chunk in assembler.feed(b"data: " + data + b"\n\n")]


ROLE = b'{"choices":[{"delta":{"role":"assistant","content":""}}]}'
TEXT = b'{"choices":[{"delta":{"content":"Hi"}}], "odd": 1}'
END = b'{"choices":[{"delta":{},"finish_reason":"stop"}]}'


def test_what_chunks_came_in_is_kept() -> None:
    """Events without news stand with the next chunk, or at the end; broken ones are passed over."""
    assert raw_of(ROLE, b"{broken", TEXT, END, ROLE, b"[DONE]") == [
        RawChunk(text="Hi", raw=(ROLE, TEXT)),
        RawChunk(finish="stop", raw=(END,)),
        RawChunk(raw=(ROLE,)),
    ]
    assert raw_of(TEXT, b"[DONE]", TEXT) == [RawChunk(text="Hi", raw=(TEXT,))]
    assert raw_of(TEXT, b'{"error":{"code":"x"}}') == [RawChunk(text="Hi", raw=(TEXT,))]


def test_a_chunk_goes_without_what_it_came_in() -> None:
    """All it says stays."""
    assert RawChunk(at=3, text="Hi", model="m", raw=(TEXT,)).plain() == Chunk(3, "Hi", model="m")
