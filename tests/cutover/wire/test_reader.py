"""The reader on recordings, on what broke other readers, and on noise."""

import copy
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutover.errors import Completed, Failed
from cutover.flow import Frame
from cutover.wire import (
    BlockTooLong,
    End,
    Piece,
    Reader,
    ServiceFraming,
    built_in,
    find_dialect,
    recognise,
)
from router.takeover import Due, PrefixMismatch, Sent

RECORDINGS = Path(__file__).parent / "recordings"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads(
    (RECORDINGS / "expected.toml").read_text("utf-8")
)
WHOLE = [name for name, due in EXPECTED.items() if due["ending"] == "completed"]
SHARED = Path(__file__).parents[4] / "shared" / "data" / "provider_streams.jsonl"


def recording(name: str) -> bytes:
    """Return a recording's bytes."""
    return (RECORDINGS / name).read_bytes()


def read(dialect: str, *pieces: bytes, torn: bool = False) -> tuple[Reader, list[Frame]]:
    """Read pieces to the end."""
    reader = Reader(find_dialect(dialect))
    found = [one for piece in pieces for one in reader.feed(piece)]
    return reader, found + reader.close(torn=torn)


def said(reader: Reader) -> dict[str, str]:
    """Return the texts that are not empty."""
    return {channel: text for channel, text in reader.texts.items() if text}


def ending(reader: Reader) -> str:
    """Return "completed", or the failure's code and blame."""
    match reader.ending:
        case Completed():
            return "completed"
        case Failed(code=code, blame=blame):
            return f"{code} {blame}"


def sse(*payloads: Any) -> bytes:
    """Encode events; a string is a payload that is no JSON."""
    texts = (one if isinstance(one, str) else json.dumps(one) for one in payloads)
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def chunk(delta: Any = None, finish: str | None = None, index: int = 0, **beside: Any) -> Any:
    """Return a chunk of a chat completion."""
    choice = {"index": index, "delta": delta or {}, "finish_reason": finish}
    return {"id": "chatcmpl-1", "choices": [choice], **beside}


def content(text: str, finish: str | None = None, index: int = 0, **beside: Any) -> Any:
    """Return a chunk with a piece of text."""
    return chunk({"content": text}, finish, index, **beside)


def test_every_recording_is_expected() -> None:
    """A file that no oracle speaks of would be tested by nothing."""
    assert {path.name for path in RECORDINGS.iterdir()} == {*EXPECTED, "expected.toml"}
    assert {due["dialect"] for due in EXPECTED.values()} == set(built_in())


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recording_says_what_is_expected(name: str) -> None:
    """Texts, ending, and what each event says; no byte is lost."""
    due = EXPECTED[name]
    reader, readings = read(due["dialect"], recording(name))
    assert (said(reader), ending(reader)) == (due["texts"], due["ending"])
    assert "".join(one.verdict[0] for one in readings) == due["verdicts"]
    assert b"".join(one.raw for one in readings) == recording(name)


def twins(dialect: str, stream: bytes) -> Iterator[tuple[Reader, bytes, bytes, int]]:
    """Yield, for each byte, a reader of all events before its own, and that event's two parts."""
    reader = Reader(find_dialect(dialect))
    start = 0
    for number, one in enumerate(read(dialect, stream)[1]):
        for at in range(len(one.raw)):
            twin = copy.deepcopy(reader, {id(reader.dialect): reader.dialect})
            yield twin, one.raw[:at], stream[start + at :], number
        assert reader.feed(one.raw) == [one]
        start += len(one.raw)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in EXPECTED if not n.endswith(".txt")])
def test_a_recording_says_the_same_wherever_it_is_cut(name: str) -> None:
    """In two pieces at each byte of each event."""
    dialect, stream = EXPECTED[name]["dialect"], recording(name)
    _, readings = read(dialect, stream)
    for twin, head, tail, number in twins(dialect, stream):
        ends = len(readings[number].raw) - len(head)
        ends += len(readings[number + 1].raw) if number + 1 < len(readings) else 0
        assert twin.feed(head) == []
        assert twin.feed(tail[:ends]) == readings[number : number + 2]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recording_says_the_same_byte_by_byte(name: str) -> None:
    """And with other line ends."""
    due, stream = EXPECTED[name], recording(name)
    whole, readings = read(due["dialect"], stream)
    reader, found = read(due["dialect"], *(stream[at : at + 1] for at in range(len(stream))))
    assert (said(reader), ending(reader)) == (due["texts"], due["ending"])
    assert b"".join(one.raw for one in found) == stream
    assert due["dialect"] == "text" or found == readings
    assert reader.annotations == whole.annotations
    for end in (b"\r\n", b"\r") if name.endswith(".sse") else ():
        reader, found = read(due["dialect"], stream.replace(b"\n", end))
        assert (said(reader), ending(reader)) == (due["texts"], due["ending"])
        assert [one.rest for one in found] == [one.rest for one in readings]


# The bytes that must have come before a stream is whole: its last that say so.
LAST_WORDS = {
    "chat-completions": b'"finish_reason": "',
    "responses": b'"response.completed"',
    "anthropic": b'{"type": "message_stop"}',
    "ai-sdk": b'{"type": "finish"}',
    "ag-ui": b'"RUN_FINISHED"',
    "ndjson": b'"done": true',
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in WHOLE if EXPECTED[n]["dialect"] in LAST_WORDS])
def test_a_stream_that_is_cut_off_is_never_whole(name: str) -> None:
    """Cut at each byte, with a broken connection and without; what it said before stays said."""
    dialect, stream = EXPECTED[name]["dialect"], recording(name)
    word = LAST_WORDS[dialect]
    due = stream.index(word) + len(word)
    for twin, head, tail, _ in twins(dialect, stream):
        torn = copy.deepcopy(twin, {id(twin.dialect): twin.dialect})
        for one, broken in ((twin, False), (torn, True)):
            one.feed(head)
            one.close(torn=broken)
            if len(stream) - len(tail) < due:
                assert ending(one) == "truncated stack", len(tail)
            for channel, text in said(one).items():
                assert EXPECTED[name]["texts"][channel].startswith(text)


@pytest.mark.parametrize("name", ["langgraph-text.sse", "text-plain.txt"])
def test_where_the_body_is_the_end_a_broken_connection_is_none(name: str) -> None:
    """An empty body says nothing, and so does one with a preamble alone."""
    dialect, stream = EXPECTED[name]["dialect"], recording(name)
    assert ending(read(dialect, stream, torn=True)[0]) == "truncated stack"
    assert ending(read(dialect, b"")[0]) == "truncated stack"
    preamble = b'event: metadata\ndata: {"run_id":"1"}\n\n'
    assert ending(read("langgraph", preamble)[0]) == "truncated stack"


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recording_is_recognised(name: str) -> None:
    """By its bytes alone, and with its media type."""
    kinds = {".sse": "text/event-stream; charset=utf-8", ".ndjson": "application/x-ndjson"}
    for kind in ("", kinds.get(Path(name).suffix, "text/plain")):
        assert recognise(recording(name), kind)[0].name == EXPECTED[name]["dialect"]


def test_what_no_dialect_fits_is_not_recognised() -> None:
    """An event stream of one's own is no plain text."""
    assert recognise(sse({"token": "Hi"}, {"token": "!"}), "text/event-stream") == []
    assert recognise(b'{"token":"Hi"}\n', "application/x-ndjson") == []
    assert [one.name for one in recognise(b"Hi\nthere\n")] == ["text"]


# Taking over: the client has the beginning of one stream, and gets the rest of another one.


def other_ids(stream: bytes) -> bytes:
    """Return a recording with other generated ids."""
    for old in (b"msg_1", b"call_1", b"toolu_1", b"m-1", b"t-1", b"c-1", b"run--1", b"run--2"):
        stream = stream.replace(b'"%b"' % old, b'"other-%b"' % old)
    return stream


def bare(reading: Frame) -> bool:
    """Whether an event has neither text nor anything that counts."""
    return not (reading.texts or reading.rest)


def halves(dialect: str, one: Frame) -> Iterable[bytes]:
    """Yield an event with the beginnings of its texts only, as another stack may have cut it."""
    longest = max((len(text) for _, text in one.texts), default=0)
    for length in range(1, longest):
        reading, data = one, None
        if dialect == "text":
            yield one.texts[0][1][:length].encode()
            continue
        data = json.loads(
            one.raw.removeprefix(b"data: ")
            if b"\ndata: " not in one.raw
            else one.raw.split(b"\ndata: ")[1]
        )
        for cut in reading.source or ():
            if cut.channel.endswith(" name"):
                continue  # comes whole
            holder = data
            for step in cut.places[0][:-1]:
                holder = holder[step]
            holder[cut.places[0][-1]] = cut.text[:length]
        head = one.raw.split(b"data: ")[0] if one.raw.startswith(b"event:") else b""
        text = json.dumps(data)
        yield f"{text}\n".encode() if dialect == "ndjson" else head + f"data: {text}\n\n".encode()


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_a_successor_goes_on_at_each_character(name: str) -> None:
    """The client has, in the end, what one whole stream says, in the ids that it knows."""
    dialect, stream = EXPECTED[name]["dialect"], recording(name)
    reader, readings = read(dialect, stream)
    beginnings = []
    for number, one in enumerate(readings):
        before = [each.raw for each in readings[:number]]
        beginnings.append(before)
        beginnings += [[*before, half] for half in halves(dialect, one)]
    assert len(beginnings) > len(readings)
    for beginning in beginnings:
        first = ServiceFraming(find_dialect(dialect))
        sent, client = Sent(), []
        for raw in beginning:
            for frame in first.read(Piece(raw)):
                sent.add(frame)
                client.append(frame.raw)
        second = ServiceFraming(find_dialect(dialect), first)
        due = Due(sent, second)
        for frame in [*second.read(Piece(other_ids(stream))), *second.read(End())]:
            if (new := due.feed(frame)) is not None:
                sent.add(new)
                client.append(new.raw)
        got, found = read(dialect, b"".join(client))
        assert (said(got), ending(got)) == (EXPECTED[name]["texts"], "completed")
        assert [one.rest for one in found if one.rest] == [one.rest for one in readings if one.rest]
        assert {k: len(ids) for k, ids in got.ids.items()} == {
            k: len(ids) for k, ids in reader.ids.items()
        }


_DELTAS: st.SearchStrategy[Any] = st.builds(
    dict,
    st.fixed_dictionaries(
        {},
        optional={
            "content": st.sampled_from(["a", "ab", 'q"', "\\", "é", "🍎", "\n", "", " b", "stop"]),
            "reasoning_content": st.sampled_from(["a", "b", "\ud83c"]),
            "tool_calls": st.just([{"index": 0, "id": "c", "function": {"arguments": "a"}}]),
            "role": st.just("assistant"),
        },
    ),
)


@given(
    st.lists(st.tuples(_DELTAS, st.sampled_from([None, None, None, "stop"]), st.integers(0, 1))),
    st.integers(1, 400),
)
def test_a_piece_like_the_one_before_it_is_read_as_any_other(
    deltas: list[tuple[Any, str | None, int]], size: int
) -> None:
    """Spaces that change from event to event forbid the short way; both ways find the same."""
    chunks = [chunk(delta, finish, index) for delta, finish, index in deltas]
    plain = b"".join(sse(one) for one in chunks)
    odd = b"".join(
        f"data: {json.dumps(one, indent=None, separators=(',' + ' ' * (n % 3), ':'))}\n\n".encode()
        for n, one in enumerate(chunks)
    )
    long, told = read("chat-completions", odd)
    short, same = read("chat-completions", plain)
    joined = Reader(find_dialect("chat-completions"), joins=True)
    together = [
        one for at in range(0, len(plain), size) for one in joined.feed(plain[at : at + size])
    ]
    together += joined.close()

    def facts(reading: Frame) -> Any:
        return reading.texts, reading.rest, reading.verdict, reading.failed

    assert [facts(one) for one in same] == [facts(one) for one in told]
    assert said(short) == said(long) == said(joined)
    assert ending(short) == ending(long) == ending(joined)
    assert b"".join(one.raw for one in together) == plain
    assert [facts(one)[1:] for one in together if bare(one) or one.rest] == [
        facts(one)[1:] for one in told if bare(one) or one.rest
    ]


def test_a_successor_that_says_something_else_is_found() -> None:
    """No text is sent that does not go on from what the client has."""
    chat = find_dialect("chat-completions")
    first, sent = ServiceFraming(chat), Sent()
    for text in ("Zwei ", "Äpfel"):
        for frame in first.read(Piece(sse(content(text)))):
            sent.add(frame)
    second = ServiceFraming(chat, first)
    (other,) = second.read(Piece(sse(content("Zwei Birnen"))))
    with pytest.raises(PrefixMismatch):
        Due(sent, second).feed(other)


# What broke readers.

ROWS = tomllib.loads(Path(__file__).with_name("streams.toml").read_text("utf-8"))


def stream_of(text: str) -> bytes:
    """Return the bytes of a stream in the table, where a line may be an event's data alone."""
    return text.encode() if re.search("^data:", text, re.MULTILINE) else sse(*text.splitlines())


@pytest.mark.parametrize("row", ROWS["chats"], ids=lambda row: row["name"])
def test_a_chat_says_what_its_sdk_would_read(row: dict[str, Any]) -> None:
    """All of it, and never success for less."""
    reader, readings = read("chat-completions", stream_of(row["stream"]))
    assert (said(reader), ending(reader)) == (row["texts"], row.get("end", "completed"))
    assert (readings[-1].verdict == "failure") <= ("end" in row)


@pytest.mark.parametrize("row", ROWS["others"], ids=lambda row: row["dialect"])
def test_other_dialects_fail_as_honestly(row: dict[str, Any]) -> None:
    """A stream without its end is truncated, and a shape that is not known is no answer."""
    reader, _ = read(row["dialect"], stream_of(row["stream"]))
    assert (said(reader), ending(reader)) == (row["texts"], row.get("end", "completed"))


SAME = {
    row["name"]: (row["dialect"], stream_of(row["one"]), stream_of(row["two"]))
    for row in ROWS["same"]
} | {
    "ids in two streams of the AI SDK": (
        "ai-sdk",
        recording("ai-sdk-text.sse"),
        other_ids(recording("ai-sdk-text.sse")),
    )
}


@pytest.mark.parametrize(("dialect", "one", "two"), SAME.values(), ids=SAME)
def test_streams_that_say_the_same_are_the_same(dialect: str, one: bytes, two: bytes) -> None:
    """As marks and joined texts, and in their annotations."""
    found = []
    for stream in (one, two):
        reader, readings = read(dialect, stream)
        sent = Sent()
        for reading in readings:
            sent.add(reading)
        found.append((sent.marks, said(reader), reader.annotations))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (b'event: custom|a\ndata: {"a":1}\n\n', b'event: custom|b\ndata: {"a":1}\n\n'),
        (
            b'event: values\ndata: {"messages":[{"id":"1"},{"id":"2"}]}\n\n',
            b'event: values\ndata: {"messages":[{"id":"1"},{"id":"1"}]}\n\n',
        ),
    ],
)
def test_streams_that_differ_are_not_the_same(one: bytes, two: bytes) -> None:
    """Names of nodes count, and so does which ids are one."""
    (first,), (second,) = read("langgraph", one)[1], read("langgraph", two)[1]
    assert (first.name, first.rest) != (second.name, second.rest)


def test_an_event_beyond_the_limit_is_refused_by_its_size() -> None:
    """Six megabytes pass; the limit is the reader's."""
    reader = Reader(find_dialect("chat-completions"))
    (large,) = reader.feed(sse(content("a" * 6_291_456)))
    assert len(large.texts[0][1]) == 6_291_456
    small = Reader(find_dialect("chat-completions"), limit=64)
    with pytest.raises(BlockTooLong, match="more than 64 bytes"):
        small.feed(sse(content("a" * 64)))


def test_an_event_that_lacks_its_end_reaches_the_client_whole() -> None:
    """The client's bytes have the blank line."""
    _, (reading,) = read("chat-completions", b"data: [DONE]")
    assert reading.raw == b"data: [DONE]\n\n"
    reader, (reading,) = read("chat-completions", sse(content("Zwei")).rstrip())
    assert reader.trimmed(reading, {"content": 3}).endswith(
        b'"content":"i"},"finish_reason":null}]}\n\n'
    )


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.exists(), reason="recordings of providers are elsewhere")
def test_recordings_of_providers_are_read_as_their_deltas_say() -> None:
    """Against a reading of their JSON that knows nothing of dialects."""
    for line in SHARED.read_text("utf-8").splitlines():
        stream = json.loads(line)["sse"]
        reader, readings = read("chat-completions", stream.encode())
        due = {"content": "", "reasoning": "", "arguments": ""}
        for data in (one[6:] for one in stream.splitlines() if one.startswith("data: {")):
            for choice in json.loads(data).get("choices", ()):
                delta = choice["delta"]
                text = delta.get("content") or ""
                if isinstance(text, list):
                    due["reasoning"] += "".join(t["text"] for p in text for t in p["thinking"])
                else:
                    due["content"] += text
                due["reasoning"] += delta.get("reasoning_content") or delta.get("reasoning") or ""
                for one in delta.get("tool_calls") or ():
                    due["arguments"] += one["function"].get("arguments") or ""
        arguments = "".join(text for name, text in said(reader).items() if "arguments" in name)
        assert due == {
            "content": reader.texts.get("content", ""),
            "reasoning": reader.texts.get("reasoning", ""),
            "arguments": arguments,
        }
        failed = '"error":' in stream
        assert isinstance(reader.ending, Failed if failed else Completed)
        assert b"".join(one.raw for one in readings) == stream.encode()
        assert recognise(stream.encode())[0].name == "chat-completions"


# Noise: pieces of real events and of nothing, in any order, cut anywhere.

KEYS_TEXT = (
    "type choices delta content index id tool_calls function name arguments error item output "
    "messages message done response [0] text thinking finish_reason toolCallId input"
)
KEYS = st.sampled_from(KEYS_TEXT.split())
KINDS_TEXT = (
    "text-delta tool-input-available response.output_text.done response.completed error finish "
    "content_block_start content_block_delta TEXT_MESSAGE_CHUNK TOOL_CALL_ARGS message_stop"
)
KINDS = st.sampled_from(KINDS_TEXT.split())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | KINDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
LINES = st.one_of(
    VALUES.map(lambda value: b"data: " + json.dumps(value).encode() + b"\n\n"),
    VALUES.map(lambda value: json.dumps(value).encode() + b"\n"),
    st.sampled_from(["messages", "error|x", "values|y", "messages/partial", "end"]).map(
        lambda name: f"event: {name}\n".encode()
    ),
    st.sampled_from(sorted(EXPECTED)).flatmap(
        lambda name: st.sampled_from(recording(name).splitlines(keepends=True))
    ),
    st.sampled_from([b"\n", b"\r\n", b"data: [DONE]\n\n", b"data: " + b"[" * 5000 + b"\n\n"]),
    st.binary(max_size=12),
)


def read_noise(dialect: str, lines: list[bytes], cut: int, skip: int) -> None:
    """Read noise, cut once; nothing is lost, and how it is cut does not matter."""
    stream = b"".join(lines)
    reader, whole = read(dialect, stream)
    pieces = [stream[a:b] for a, b in pairwise([0, min(cut, len(stream)), len(stream)])]
    again, found = read(dialect, *pieces)
    assert said(reader) == said(again)
    assert reader.ending == again.ending
    assert b"".join(one.raw for one in whole) in {stream, stream + b"\n\n"}
    assert dialect == "text" or found == whole
    for one in whole:
        channels = {channel: min(skip, len(text)) for channel, text in one.texts}
        if one.verdict != "failure" and channels:
            reader.trimmed(one, channels)


NOISE = given(lines=st.lists(LINES, max_size=8), cut=st.integers(0, 400), skip=st.integers(0, 5))


@pytest.mark.slow
@pytest.mark.parametrize("dialect", built_in())
@NOISE
def test_noise_raises_nothing(dialect: str, lines: list[bytes], cut: int, skip: int) -> None:
    """Whatever a service says, the reader answers with a verdict."""
    read_noise(dialect, lines, cut, skip)


@pytest.mark.nightly
@pytest.mark.parametrize("dialect", built_in())
@settings(max_examples=100_000)
@NOISE
def test_much_noise_raises_nothing(dialect: str, lines: list[bytes], cut: int, skip: int) -> None:
    """The same, a hundred thousand times."""
    read_noise(dialect, lines, cut, skip)
