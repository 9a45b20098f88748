"""The assembler: chunks from bytes cut anywhere, and the verdict at the end."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import Fault
from contract.model import Chunk, RawChunk, Usage
from effects.model import Limits
from effects.model.stream import (
    DRAIN_SECONDS,
    MAX_BYTES,
    MAX_EVENT_BYTES,
    RawAssembler,
    StreamAssembler,
    StreamDeadlines,
    total_deadline,
)
from tests.support.loopback_provider import delta, finish, sse, usage

DONE = b"data: [DONE]\n\n"


def stream(*events: object) -> bytes:
    """Encode events, each a JSON value or bytes that stand for themselves."""
    return b"".join(event if isinstance(event, bytes) else sse(event) for event in events)


def assembled(*pieces: bytes) -> tuple[list[Chunk], Fault | None, int]:
    """Return chunks, verdict and how many events were malformed."""
    assembler = StreamAssembler()
    chunks = [chunk for piece in pieces for chunk in assembler.feed(piece)]
    return chunks, assembler.end(), assembler.malformed


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


def test_repeats_are_left_out() -> None:
    """Some providers send finish reason and usage twice."""
    both = {**usage(3, 2), "choices": finish()["choices"]}
    chunks, _, _ = assembled(stream(finish(), both, both, DONE))
    assert chunks == [Chunk(finish="stop", model="loop-1"), Chunk(usage=Usage(3, 2, 5))]


def test_a_stream_without_end_is_ended() -> None:
    """Whether it speaks all the time or never ends its first line."""
    said = sse(delta(content="y" * (1 << 20)))
    for piece, most in ((said, MAX_BYTES), (b"z" * (1 << 20), MAX_EVENT_BYTES)):
        assembler = StreamAssembler()
        for _ in range(most // len(piece)):
            assembler.feed(piece)
        assert assembler.fault is None
        assert assembler.feed(piece) == assembler.feed(piece) == []
        assert assembler.end() == Fault("model_error", data={"type": "endless"})


def truncated(malformed: int = 0) -> Fault:
    """Make the verdict on a stream that was cut."""
    return Fault("model_truncated", retryable=True, data={"malformed": malformed})


HI = delta(content="Hi")
VERDICTS: dict[str, tuple[bytes, str, Fault | None, int]] = {
    "done without a finish reason is a truncation": (stream(HI, DONE), "Hi", truncated(), 0),
    "a finish reason without done is complete": (stream(HI, finish()), "Hi", None, 0),
    "nothing is a truncation": (b"", "", truncated(), 0),
    "text alone is a truncation": (stream(HI), "Hi", truncated(), 0),
    "usage does not complete it": (stream(HI, usage(1, 1)), "Hi", truncated(), 0),
    "done without its blank line was cut": (stream(HI) + b"data: [DONE]", "Hi", truncated(), 0),
    "a malformed chunk is passed over and counted": (
        stream(delta(content="a"), b"data: {nope\n\n", delta(content="b"), finish(), DONE),
        "ab",
        None,
        1,
    ),
    "comments are no chunks": (
        stream(b": PROCESSING\n\n", HI, finish(), DONE),
        "Hi",
        None,
        0,
    ),
    # Recorded from a provider that stopped at a token limit.
    "an error after the finish reason": (
        stream(HI, finish("length"), {"error": {"code": 400}}, DONE),
        "Hi",
        Fault("model_error", data={"code": 400}),
        0,
    ),
    "nothing after done counts": (stream(HI, finish(), DONE, HI, b"data: x"), "Hi", None, 0),
}


@pytest.mark.parametrize(("body", "text", "fault", "malformed"), VERDICTS.values(), ids=VERDICTS)
def test_the_verdict_on_a_stream(
    body: bytes, text: str, fault: Fault | None, malformed: int
) -> None:
    """Neither text nor `[DONE]` proves that it is whole: the finish reason does."""
    chunks, found, count = assembled(body)
    assert ("".join(chunk.text for chunk in chunks), found, count) == (text, fault, malformed)


def test_another_model_is_reported() -> None:
    """A gateway may change models in between."""
    chunks, _, _ = assembled(stream(delta(content="a"), {**delta(content="b"), "model": "x"}))
    assert [chunk.model for chunk in chunks] == ["loop-1", "x"]


@pytest.mark.parametrize(
    ("opened", "closed"), [('{"arguments":', "}"), ('[{"thinking":', "}]")], ids=["call", "thought"]
)
def test_nesting_at_the_limit_is_malformed_and_no_crash(opened: str, closed: str) -> None:
    """What can just be decoded may be too deep to be looked into."""
    limit = sys.getrecursionlimit()
    for depth in range(limit * 2 // 5, limit):
        odd = opened * depth + '"deep"' + closed * depth
        fields = f'"content":{odd}' if closed == "}]" else f'"tool_calls":[{{"function":{odd}}}]'
        assembler = StreamAssembler()
        chunks = assembler.feed(f'data: {{"choices":[{{"delta":{{{fields}}}}}]}}\n\n'.encode())
        assert len(chunks) + assembler.malformed <= 1


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
    """Wherever it stands; its chunk and all after it are dropped, its sentence is not stored."""
    chunks, fault, _ = assembled(stream(delta(content="a"), event, delta(content="b"), DONE))
    assert [chunk.text for chunk in chunks] == ["a"]
    assert fault is not None
    assert fault.code == "model_error"
    assert "secret" not in repr(fault)


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
    half = rb'{"choices":[{"delta":{"content":"\ud83d"}}]}'  # held back until the end
    assert raw_of(half, b"[DONE]") == [RawChunk(text="\ufffd", raw=(half,))]
    assert RawChunk(at=3, text="Hi", model="m", raw=(TEXT,)).plain() == Chunk(3, "Hi", model="m")


def cut(*contents: bytes, name: bytes = b"content") -> list[Chunk]:
    """Assemble deltas whose content is written as given, and the end."""
    events = [b'data: {"choices":[{"delta":{"%b":"%b"}}]}\n\n' % (name, one) for one in contents]
    return assembled(*events, stream(finish(), DONE))[0]


EMOJI = "\U0001f480".encode()

CUT: dict[str, tuple[list[bytes], list[str]]] = {
    "a surrogate pair": ([rb"a\ud83d", rb"\ude00b"], ["a", "\U0001f600b"]),
    "a low half that looks like a byte": ([rb"\ud83d", rb"\udc80"], ["\U0001f480"]),
    "UTF-8 in two": ([b"a" + EMOJI[:2], EMOJI[2:] + b"b"], ["a", "\U0001f480b"]),
    "UTF-8 byte by byte": ([EMOJI[i : i + 1] for i in range(4)], ["\U0001f480"]),
    "with an empty delta between": ([rb"\ud83d", b"", rb"\ude00"], ["\U0001f600"]),
    "no other half": ([rb"\ud83d", b"b"], ["\ufffdb"]),
    "a wrong other half": ([rb"\ud83d", rb"\ud83d\ude00"], ["\ufffd\U0001f600"]),
    "only an other half": ([rb"\ude00", b"b"], ["\ufffd", "b"]),
    "nothing after it": ([rb"a\ud83d"], ["a", "\ufffd"]),
    "bytes of nothing": ([b"a\xff", b"b"], ["a\ufffd", "b"]),
    "bytes that never end": ([b"a" + EMOJI[:3]], ["a", "\ufffd"]),
}


@pytest.mark.parametrize("case", CUT)
def test_a_character_cut_in_two_is_whole_again(case: str) -> None:
    """Held back until the next delta of its track; U+FFFD where the other half never comes."""
    contents, texts = CUT[case]
    assert [chunk.text for chunk in cut(*contents) if chunk.text] == texts
    chunks = cut(*contents, name=b"reasoning")
    assert [chunk.reasoning for chunk in chunks if chunk.reasoning] == texts


def test_a_half_comes_at_the_end_of_a_stream_that_does_not_finish() -> None:
    """Also where `[DONE]` is all that comes, and in the arguments of a call."""
    said = rb'{"content":"a\ud83d","tool_calls":[{"index":2,"function":{"arguments":"b\ud83d"}}]}'
    chunks, fault, _ = assembled(b'data: {"choices":[{"delta":%b}]}\n\n' % said, DONE)
    assert fault == truncated()
    assert [chunk.text for chunk in chunks] == ["a", "\ufffd"]
    calls = [call for chunk in chunks for call in chunk.tool_calls]
    assert [(call.index, call.arguments) for call in calls] == [(2, "b"), (2, "\ufffd")]


def test_tracks_are_joined_each_by_itself() -> None:
    """Text, reasoning and the arguments of each call wait for their own other half."""
    call = '{"tool_calls":[{"index":%d,"function":{"arguments":"%s"}}]}'
    deltas = [
        r'{"content":"\ud83d","reasoning":"\ud83e"}',
        call % (0, r"\ud83d"),
        call % (1, r"\ud83e"),
        r'{"content":"\ude00"}',
        call % (1, r"\udd16"),
        call % (0, r"\ude00"),
        r'{"reasoning":"\udd16"}',
    ]
    events = [f'data: {{"choices":[{{"delta":{one}}}]}}\n\n'.encode() for one in deltas]
    chunks = assembled(*events, stream(finish(), DONE))[0]
    assert "".join(chunk.text for chunk in chunks) == "\U0001f600"
    assert "".join(chunk.reasoning for chunk in chunks) == "\U0001f916"
    said = ["", ""]
    for one in (one for chunk in chunks for one in chunk.tool_calls):
        said[one.index] += one.arguments
    assert said == ["\U0001f600", "\U0001f916"]


@given(st.text(st.characters(min_codepoint=0x20, exclude_characters='"\\'), max_size=12), st.data())
def test_text_cut_anywhere_is_whole(text: str, data: st.DataObject) -> None:
    """Between any bytes of UTF-8, and whatever was cut, it can be written down."""
    raw = text.encode()
    at = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=3)))
    pieces = [raw[a:b] for a, b in pairwise([0, *at, len(raw)])]
    assert "".join(chunk.text for chunk in cut(*pieces)) == text


@given(st.lists(st.binary(max_size=6), max_size=4))
def test_whatever_was_cut_can_be_encoded(contents: list[bytes]) -> None:
    """No half passes."""
    for chunk in cut(*contents):
        chunk.text.encode()


LIMITS = Limits(first_byte=3, first_token=10, idle=5, total=100, tail=1)


def since(start: float, limits: Limits = LIMITS) -> StreamDeadlines:
    """Return the deadlines of a call made then."""
    return StreamDeadlines(limits, start, total_deadline(limits, start))


def due(deadlines: StreamDeadlines, **noted: float) -> tuple[float, str]:
    """Note what has come; return when the next wait ends, and how."""
    for name, value in noted.items():
        setattr(deadlines, name, value)
    deadline = deadlines.next()
    return deadline.when, deadline.code


def test_the_stages_of_a_stream() -> None:
    """Headers, first token, silence in between; the first two count from the start."""
    deadlines = since(1000)
    assert due(deadlines) == (1003, "model_timeout_first_byte")
    assert due(deadlines, answered=True) == (1010, "model_timeout_first_token")
    assert due(deadlines, heard=1004) == (1010, "model_timeout_first_token")
    assert due(deadlines, heard=1005, spoke=True) == (1010, "model_timeout_idle")
    assert due(deadlines, heard=1009) == (1014, "model_timeout_idle")


def test_the_shorter_of_two_limits_holds() -> None:
    """The total ends every stage; a first token may be due before the first byte."""
    assert due(since(0), answered=True, heard=98, spoke=True) == (100, "model_timeout_total")
    soon = since(0, Limits(first_byte=30, first_token=2))
    assert due(soon) == (2, "model_timeout_first_token")


def test_headers_may_take_as_long_as_the_first_token() -> None:
    """A model that is loaded first, or reads a long prompt, may send both at once."""
    assert due(since(0, Limits())) == (120, "model_timeout_first_token")
    assert due(since(0, Limits(first_token=20))) == (20, "model_timeout_first_token")
    assert due(since(0, Limits()), answered=True) == (120, "model_timeout_first_token")


def test_after_the_finish_reason_the_tail_once() -> None:
    """Later pieces do not prolong it; after `[DONE]` only the end of the connection is due."""
    deadlines = since(0)
    deadlines.finished(20, done=False)
    deadlines.finished(20.5, done=False)
    assert due(deadlines)[0] == 21
    deadlines.finished(20.2, done=True)
    assert due(deadlines)[0] == 20.2 + DRAIN_SECONDS


def test_a_fault_names_its_limit() -> None:
    """In seconds; asking again could help."""
    fault = since(0).next().fault
    assert fault == Fault("model_timeout_first_byte", retryable=True, data={"seconds": 3})


FULL: dict[str, Any] = {
    "model": "loop-1",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "delta": {
                "role": "assistant",
                "content": "Hi",
                "reasoning_content": "Hm",
                "reasoning": "Hm",
                "refusal": "No",
                "tool_calls": [
                    {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    "x_groq": {"usage": {"prompt_tokens": 1}},
}
ODD: tuple[object, ...] = (None, True, -1, 1.5, "x", [], [1], ["x"], [{}], {}, {"x": [1]})


def places(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """List the places of all values in one."""
    if at:
        yield at
    keys = range(len(value)) if isinstance(value, list) else value
    for key in keys if isinstance(value, dict | list) else ():
        yield from places(value[key], (*at, key))


@pytest.mark.parametrize("at", list(places(FULL)), ids=lambda at: ".".join(map(str, at)))
@pytest.mark.parametrize("held", ["content", "nothing"])
def test_a_value_of_any_type_anywhere_is_read_or_passed_over(
    at: tuple[str | int, ...], held: str
) -> None:
    """A finish reason that is an object ended the exchange with an exception."""
    for odd in ODD:
        event = copy.deepcopy(FULL)
        if held == "nothing":
            event["choices"][0]["delta"] |= {"content": "", "reasoning_content": None}
        holder: Any = event
        for key in at[:-1]:
            holder = holder[key]
        holder[at[-1]] = odd
        body = stream(event, delta(content="!"), finish(), DONE)
        for assembler in (StreamAssembler(), RawAssembler()):
            assembler.feed(body)
            assert isinstance(assembler.end(), Fault | None)
