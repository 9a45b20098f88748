"""Provider JSON to chunk: what is kept, what is passed over, what is mended."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from contract.model import Chunk, ToolCallDelta, Usage
from effects.model.chunks import CallIndexes, Halves, SplitChunk, chunk_of, decode_event


def read(event: object) -> Chunk:
    """Decode and translate one event that is a chunk."""
    data = event if isinstance(event, bytes) else json.dumps(event).encode()
    wire = decode_event(data)
    assert wire is not None
    chunk = chunk_of(wire, wire.choice, CallIndexes())
    return whole(chunk) if isinstance(wire, SplitChunk) else chunk


def whole(chunk: Chunk) -> Chunk:
    """Return the chunk as the last of its stream."""
    return replace(Halves().join(replace(chunk, finish="stop")), finish=chunk.finish)


def delta(**fields: object) -> dict[str, object]:
    """Make an event of one choice."""
    return {"choices": [{"index": 0, "delta": fields}]}


def deltas(*calls: object) -> tuple[ToolCallDelta, ...]:
    """Translate tool-call deltas, each an event of its own."""
    indexes = CallIndexes()
    pieces: list[ToolCallDelta] = []
    for call in calls:
        wire = decode_event(json.dumps(delta(tool_calls=[call])).encode())
        assert wire is not None
        pieces += chunk_of(wire, wire.choice, indexes).tool_calls
    return tuple(pieces)


def test_text() -> None:
    """Content is text."""
    assert read(delta(content="Hel")) == Chunk(text="Hel")


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_has_two_names(name: str) -> None:
    """Providers call it one or the other."""
    assert read(delta(content=None, **{name: "hm"})) == Chunk(reasoning="hm")


def test_reasoning_under_both_names_counts_once() -> None:
    """Gateways repeat it for clients of either kind."""
    assert read(delta(reasoning_content="hm", reasoning="hm")) == Chunk(reasoning="hm")


def test_content_in_parts() -> None:
    """One provider sends thinking and text as parts."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    parts = [thinking, {"type": "text", "text": "Hel"}]
    assert read(delta(content=parts)) == Chunk(text="Hel", reasoning="hm")


def test_nulls_say_nothing() -> None:
    """Fields may be null instead of absent."""
    nulls = {"content": None, "tool_calls": None, "reasoning": None}
    event = {"choices": [{"index": 0, "delta": nulls, "finish_reason": None}], "usage": None}
    assert read(event) == Chunk()
    assert read({"choices": None, "error": None}) == Chunk()
    assert read({"choices": [{"delta": None}]}) == Chunk()


def test_finish_model_and_usage() -> None:
    """The three may come in one event, the usage also after the last choice."""
    counts = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "cost": 0.1}
    last = {"model": "m-1", "choices": [{"finish_reason": "stop"}], "usage": counts}
    assert read(last) == Chunk(finish="stop", usage=Usage(3, 2, 5), model="m-1")
    assert read({"choices": [], "usage": counts}) == Chunk(usage=Usage(3, 2, 5))


def test_usage_may_be_incomplete() -> None:
    """Absent and null counts are 0, an absent total is the sum."""
    counts = {"prompt_tokens": 3, "completion_tokens": None}
    assert read({"usage": counts}) == Chunk(usage=Usage(3, 0, 3))
    assert read({"usage": "many"}) == Chunk()


@pytest.mark.parametrize("odd", [-1, -1.5, 2**31, 10**40, 1e300])
def test_what_is_no_count_of_tokens_is_none(odd: float) -> None:
    """Some say -1 for what they do not know: no budget and no counter takes that."""
    counts = {"prompt_tokens": odd, "completion_tokens": 2, "total_tokens": odd}
    assert read({"usage": counts}) == Chunk(usage=Usage(0, 2, 2))


def test_of_several_choices_the_first_counts() -> None:
    """Index 0, wherever it stands."""
    choices = [{"index": 1, "delta": {"content": "b"}}, {"index": 0, "delta": {"content": "a"}}]
    assert read({"choices": choices}) == Chunk(text="a")
    assert read({"choices": choices[:1]}) == Chunk()


def test_tool_calls_by_index() -> None:
    """Interleaved pieces keep the index they came with."""
    assert deltas(
        {"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}},
        {"index": 1, "id": "b", "function": {"name": "g", "arguments": None}},
        {"index": 0, "function": {"arguments": "{"}},
        {"index": 1, "id": None, "function": {"name": None, "arguments": "}"}},
    ) == (
        ToolCallDelta(0, "a", "f"),
        ToolCallDelta(1, "b", "g"),
        ToolCallDelta(0, arguments="{"),
        ToolCallDelta(1, arguments="}"),
    )


def test_tool_calls_without_an_index_go_by_their_id() -> None:
    """A new id opens the next call, a known one is found again, none continues the last."""
    pieces = deltas(
        {"id": "a", "function": {"name": "f"}},
        {"function": {"arguments": "1"}},
        {"id": "b", "function": {"name": "g"}},
        {"id": "a", "function": {"arguments": "2"}},
        {"index": None, "function": {"arguments": "3"}},
    )
    assert [piece.index for piece in pieces] == [0, 0, 1, 0, 0]


@pytest.mark.parametrize("odd", [True, False, 1.5, "1", [], None])
def test_what_is_no_index_is_none(odd: object) -> None:
    """A tape is read again: whatever stands on it has to be of its type."""
    (call,) = deltas({"index": odd, "id": "a", "function": {"name": "f"}})
    assert type(call.index) is int
    assert msgspec.json.decode(msgspec.json.encode(call), type=ToolCallDelta) == call


def test_arguments_sent_as_an_object_become_its_text() -> None:
    """Some servers do not encode them twice."""
    [piece] = deltas({"index": 0, "function": {"name": "f", "arguments": {"a": 1}}})
    assert json.loads(piece.arguments) == {"a": 1}


def test_odd_leaves_cost_only_themselves() -> None:
    """A number where text belongs is passed over, the rest of the chunk is kept."""
    event = {"model": 7, "choices": [{"delta": {"content": "a", "reasoning": 1}}]}
    assert read(event) == Chunk(text="a")
    assert read(delta(content=5, tool_calls="none")) == Chunk()
    assert read(delta(tool_calls=["x", {"index": 0, "function": "f"}])).tool_calls == (
        ToolCallDelta(0),
    )


def test_half_an_emoji_is_replaced_and_the_chunk_kept() -> None:
    """A lone surrogate cannot be encoded again; it becomes U+FFFD."""
    event = rb'{"choices":[{"delta":{"content":"a\ud83d","reasoning":"\ude00b"}}]}'
    assert read(event) == Chunk(text="a\ufffd", reasoning="\ufffdb")


def test_a_whole_emoji_in_two_escapes_stays() -> None:
    """Beside a lone surrogate too."""
    event = rb'{"choices":[{"delta":{"content":"\ud83d\ude00 \ud83d"}}]}'
    assert read(event) == Chunk(text="\U0001f600 \ufffd")


def test_a_nul_is_replaced() -> None:
    """No store keeps one, and no answer may be lost for it."""
    assert read(delta(content="a\0b")) == Chunk(text="a\ufffdb")
    assert read(delta(content=[{"type": "text", "text": "\0"}])) == Chunk(text="\ufffd")


def test_invalid_utf8_is_replaced_and_the_chunk_kept() -> None:
    """As a decoder of the event stream would."""
    assert read(b'{"choices":[{"delta":{"content":"a\xff"}}]}') == Chunk(text="a\ufffd")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nope",
        b"[]",
        b'"text"',
        b"1",
        b'{"choices":',
        b'{"choices":{}}',
        b"[" * 5000,
        b'{"choices":[{"delta":{"content":' + b"[" * 5000 + b"]" * 5000 + b"}}]}",
        b'{"usage":NaN,"choices":[]}',
    ],
)
def test_what_is_no_chunk_is_none(data: bytes) -> None:
    """The caller counts it and goes on."""
    assert decode_event(data) is None


def test_an_error_in_an_impossible_chunk_is_still_an_error() -> None:
    """Whatever else stands there."""
    wire = decode_event(b'{"choices":{"a":1},"error":{"code":500}}')
    assert wire is not None
    assert wire.error == {"code": 500}


NAMES = (
    *("choices", "delta", "content", "tool_calls", "index", "id", "function", "arguments"),
    *("usage", "prompt_tokens", "finish_reason", "error", "thinking"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(JSON | st.builds(lambda fields: {"choices": [{"delta": fields}]}, JSON))
def test_no_json_raises(event: object) -> None:
    """A chunk, or None: never an exception."""
    wire = decode_event(json.dumps(event).encode())
    assert wire is None or isinstance(chunk_of(wire, wire.choice, CallIndexes()), Chunk)


@given(st.binary(max_size=40))
def test_no_bytes_raise(data: bytes) -> None:
    """Whatever a provider sends."""
    wire = decode_event(data)
    assert wire is None or isinstance(chunk_of(wire, wire.choice, CallIndexes()), Chunk)
