"""Provider JSON to chunk: what is kept, what is passed over, what is mended."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from contract.model import (
    AssistantMessage,
    Chunk,
    ImagePart,
    ImageUrl,
    ModelCall,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolCallDelta,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from effects.model.chunks import (
    CallIndexes,
    Halves,
    SplitChunk,
    chunk_of,
    decode_event,
    encode_call,
)


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


COUNTS = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "cost": 0.1}
NULLS = {"content": None, "tool_calls": None, "reasoning": None}
PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
    {"type": "text", "text": "Hel"},
]
CHOICES = [{"index": 1, "delta": {"content": "b"}}, {"index": 0, "delta": {"content": "a"}}]
CHUNKS: dict[str, tuple[object, Chunk]] = {
    "text": (delta(content="Hel"), Chunk(text="Hel")),
    "reasoning": (delta(content=None, reasoning="hm"), Chunk(reasoning="hm", field="reasoning")),
    "reasoning by its other name": (
        delta(content=None, reasoning_content="hm"),
        Chunk(reasoning="hm"),
    ),
    "reasoning under both names counts once": (
        delta(reasoning_content="hm", reasoning="hm"),
        Chunk(reasoning="hm"),
    ),
    "content in parts": (delta(content=PARTS), Chunk(text="Hel", reasoning="hm")),
    "nulls instead of absent fields": (
        {"choices": [{"index": 0, "delta": NULLS, "finish_reason": None}], "usage": None},
        Chunk(),
    ),
    "null choices": ({"choices": None, "error": None}, Chunk()),
    "a null delta": ({"choices": [{"delta": None}]}, Chunk()),
    "finish, model and usage in one event": (
        {"model": "m-1", "choices": [{"finish_reason": "stop"}], "usage": COUNTS},
        Chunk(finish="stop", usage=Usage(3, 2, 5), model="m-1"),
    ),
    "usage after the last choice": (
        {"choices": [], "usage": COUNTS},
        Chunk(usage=Usage(3, 2, 5)),
    ),
    "absent and null counts are 0, an absent total is the sum": (
        {"usage": {"prompt_tokens": 3, "completion_tokens": None}},
        Chunk(usage=Usage(3, 0, 3)),
    ),
    "usage that is no object": ({"usage": "many"}, Chunk()),
    "of several choices that of index 0": ({"choices": CHOICES}, Chunk(text="a")),
    "no choice of index 0": ({"choices": CHOICES[:1]}, Chunk()),
    "odd leaves cost only themselves": (
        {"model": 7, "choices": [{"delta": {"content": "a", "reasoning": 1}}]},
        Chunk(text="a"),
    ),
    "odd content and tool calls": (delta(content=5, tool_calls="none"), Chunk()),
    "odd members of tool calls": (
        delta(tool_calls=["x", {"index": 0, "function": "f"}]),
        Chunk(tool_calls=(ToolCallDelta(0),)),
    ),
    "half an emoji, written as a lone surrogate": (
        rb'{"choices":[{"delta":{"content":"a\ud83d","reasoning":"\ude00b"}}]}',
        Chunk(text="a\ufffd", reasoning="\ufffdb"),
    ),
    "a whole emoji in two escapes beside a lone surrogate": (
        rb'{"choices":[{"delta":{"content":"\ud83d\ude00 \ud83d"}}]}',
        Chunk(text="\U0001f600 \ufffd"),
    ),
    "half a character in the name of a field": (
        rb'{"a\ud83d":1,"choices":[{"delta":{"content":"b\ud83d"}}]}',
        Chunk(text="b\ufffd"),
    ),
    "a byte that is no UTF-8 in the name of a field": (
        b'{"a\xff":1,"choices":[{"delta":{"content":"b"}}]}',
        Chunk(text="b"),
    ),
    "a NUL, which no store holds": (delta(content="a\0b"), Chunk(text="a\ufffdb")),
    "a NUL in a part": (
        delta(content=[{"type": "text", "text": "\0"}]),
        Chunk(text="\ufffd"),
    ),
    "invalid UTF-8": (b'{"choices":[{"delta":{"content":"a\xff"}}]}', Chunk(text="a\ufffd")),
    **{
        f"a count of {odd}, which no counter takes": (
            {"usage": {"prompt_tokens": odd, "completion_tokens": 2, "total_tokens": odd}},
            Chunk(usage=Usage(0, 2, 2)),
        )
        for odd in (-1, -1.5, 2**31, 10**40, 1e300)
    },
}


@pytest.mark.parametrize(("event", "chunk"), CHUNKS.values(), ids=CHUNKS)
def test_an_event_becomes_a_chunk(event: object, chunk: Chunk) -> None:
    """Whatever providers put into a leaf, the rest of the chunk is used."""
    assert read(event) == chunk


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


@given(st.data())
def test_calls_stay_apart_however_their_pieces_are_marked(data: st.DataObject) -> None:
    """By index, by id, or by neither where one follows the other; any arguments, cut anywhere."""
    style = data.draw(st.sampled_from(["index", "ids at index 0", "ids", "one after another"]))
    texts = data.draw(st.lists(st.text("ab{}:1", max_size=6), min_size=1, max_size=4))
    calls = []
    for number, text in enumerate(texts):
        at = data.draw(st.integers(0, len(text)))
        opening: dict[str, Any] = {"name": f"tool {number}", "arguments": text[:at]}
        marks: dict[str, Any] = {"index": number} if style == "index" else {}
        if style == "ids at index 0":
            marks = {"index": 0, "id": f"call {number}"}
        elif style == "ids":
            marks = {"id": f"call {number}"}
        first = {"id": f"call {number}", **marks, "function": opening}
        calls.append([first, {**marks, "function": {"arguments": text[at:]}}])
    order = [number for number, _ in enumerate(calls) for _ in range(2)]
    if style in {"index", "ids"}:
        order = data.draw(st.permutations(order))
    left = [iter(pieces) for pieces in calls]
    joined: dict[int, str] = {}
    names: dict[int, str] = {}
    for piece in deltas(*[next(left[number]) for number in order]):
        joined[piece.index] = joined.get(piece.index, "") + piece.arguments
        names.setdefault(piece.index, piece.name)
    found = {names[index]: arguments for index, arguments in joined.items()}
    assert found == {f"tool {number}": text for number, text in enumerate(texts)}


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


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"nope", b"[]", b'"text"', b"1", b'{"choices":', b'{"choices":{}}'),
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


def body(call: ModelCall) -> Any:
    """Return the decoded body."""
    return json.loads(encode_call(call, "gpt-4.1-2025"))


def test_the_least_a_call_can_say() -> None:
    """Nothing is sent that was not said, except that it streams and reports usage."""
    assert body(ModelCall(model_id="ours", messages=(UserMessage("Hi"),))) == {
        "model": "gpt-4.1-2025",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_everything_a_call_can_say() -> None:
    """Parameters of 0 are sent: they are not absent."""
    schema = {"type": "object", "properties": {"a": {"type": "number"}}}
    call = ModelCall(
        model_id="ours",
        messages=(UserMessage("Hi"),),
        temperature=0.0,
        max_tokens=10,
        tools=(ToolSpec("add", "Adds.", msgspec.Raw(json.dumps(schema).encode())),),
        tool_choice="none",
        json_object=True,
    )
    function = {"name": "add", "description": "Adds.", "parameters": schema}
    assert body(call) == {
        **body(ModelCall(model_id="ours", messages=call.messages)),
        "temperature": 0.0,
        "max_tokens": 10,
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "none",
        "response_format": {"type": "json_object"},
    }


def test_a_conversation_with_tools_keeps_its_order() -> None:
    """An assistant message of tool calls alone has content null."""
    call = ToolCall("call_1", "add", '{"a":1')
    messages = (
        SystemMessage("Be brief."),
        UserMessage("1 + 1?"),
        AssistantMessage(None, (call,)),
        ToolMessage("call_1", "2"),
        AssistantMessage("2"),
    )
    function = {"name": "add", "arguments": '{"a":1'}
    assert body(ModelCall(model_id="ours", messages=messages))["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1 + 1?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"type": "function", "id": "call_1", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "2"},
        {"role": "assistant", "content": "2"},
    ]


def test_images_are_parts() -> None:
    """Beside their text."""
    parts = (TextPart("What is it?"), ImagePart(ImageUrl("data:image/png;base64,AA==")))
    [message] = body(ModelCall(model_id="ours", messages=(UserMessage(parts),)))["messages"]
    assert message["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
    ]
