"""Reading the few frames of a wire that a router has to know."""

from __future__ import annotations

import msgspec
import pytest

from contract.flow import Event
from contract.flows.chat import CHAT, ChatOptions, End, Send
from contract.wire import Dialect, EventNames, FrameReader

CHAT_READER = FrameReader(CHAT.dialect)


def reader(terminal: str, dialect: Dialect) -> FrameReader:
    """Read a wire whose streams end with one event."""
    return FrameReader(msgspec.structs.replace(dialect, terminal=(terminal,)))


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        (b'data: {"step":"END"}\n\n', "END"),
        (b'data: {"step":"END"}', "END"),
        (b'data: {"step":"FAILED"}\r\n\r\n', "FAILED"),
        (b': hello\ndata:{"step":\ndata:"END"}\n\n', "END"),
        (b'data: {"step":"SEND","content":"THE END"}\n\n', None),
        (b'data: {"step":"SUCCESS","content":"END"}\n\n', None),
        (b": END\n\n", None),
        (b"data: {END\n\n", None),
        (b'data: ["END"]\n\n', None),
        (b'data: {"step":["END"]}\n\n', None),
        (b'data: "\xff END"\n\n', None),
    ],
)
def test_only_the_event_itself_ends_a_stream(frame: bytes, name: str | None) -> None:
    """A word in a text is no ending, and what cannot be read is none either."""
    assert CHAT_READER.notable(frame) == name
    assert name is None or list(CHAT_READER.suspects([b": c\n\n", frame])) == [1]


def test_names_may_be_sse_fields_payloads_or_escaped() -> None:
    """Every way a dialect has of naming an event, on both framings."""
    fields = reader("end", Dialect())
    assert fields.notable(b"event: end\ndata: {}\n\n") == "end"
    assert fields.suspects([b"event: end\ndata: {}\n\n"])
    assert fields.notable(b"event: token\ndata: the end\n\n") is None
    done = reader("[DONE]", Dialect())
    assert done.notable(b"data: [DONE]\n\n") == "[DONE]"
    assert done.suspects([b"data: [DONE]\n\n"])
    assert done.notable(b'data: "say [DONE]"\n\n') is None
    escaped = reader("完了", Dialect(event=EventNames(path="kind")))
    assert escaped.notable(b'data: {"kind":"\\u5b8c\\u4e86"}\n\n') == "完了"
    assert escaped.suspects([b'data: {"kind":"\\u5b8c\\u4e86"}\n\n'])
    assert escaped.notable('data: {"kind":"完了"}\n\n'.encode()) == "完了"
    assert escaped.suspects(['data: {"kind":"完了"}\n\n'.encode()])
    lines = reader("end", Dialect(framing="ndjson", event=EventNames(path="a.b")))
    assert lines.notable(b'{"a":{"b":"end"}}\r\n') == "end"
    assert lines.suspects([b'{"a":{"b":"end"}}\r\n'])
    assert lines.notable(b'{"a":"end"}\n') is None


def test_texts_are_not_read() -> None:
    """Most frames of most answers have no such name between quotes."""
    sends = [CHAT.encode(Send(text)) for text in ("THE END", 'he said "END"', "SEND FAILED")]
    assert not CHAT_READER.suspects(sends)


@pytest.mark.parametrize(
    ("frame", "speaks"),
    [
        (b"data: x\n\n", True),
        (b"data\n\n", True),
        (b"\xef\xbb\xbfdata: x\n\n", True),
        (b": c\rdata: x\r\r", True),
        (b"event: a\n\n", False),
        (b": data: x\n\n", False),
        (b"database: x\n\n", False),
        (b"retry: 3\n\n", False),
        (b"\n\n", False),
    ],
)
def test_an_event_is_what_has_data(frame: bytes, *, speaks: bool) -> None:
    """Comments and fields alone are dispatched by no client."""
    assert CHAT_READER.is_event(frame) is speaks


def test_a_blank_line_of_ndjson_says_nothing() -> None:
    """It keeps a connection alive."""
    lines = reader("end", Dialect(framing="ndjson", event=EventNames(path="a")))
    assert [lines.is_event(line) for line in (b"\r\n", b" \n", b"{}\n")] == [False, False, True]


def decoded(frame: bytes) -> Event | None:
    """Decode the event in a frame of the chat flow."""
    event = CHAT_READER.event(frame)
    return None if event is None else CHAT.decoded(event)


def test_events_are_the_flows_own_or_none() -> None:
    """For the failure frames: what the last event was."""
    assert decoded(CHAT.encode(Send("a"))) == Send("a")
    assert decoded(b'data: {"step":"END"}') == End()
    for frame in (b'data: {"step":"ELSE"}\n\n', b"data: {\n\n", b": c\n\n", b""):
        assert decoded(frame) is None


def test_an_undecodable_event_gets_no_second_prologue() -> None:
    """The failure frames after an unknown event begin no new stream."""
    steps = [CHAT.name_of(event) for event in CHAT.failure(ChatOptions(), "x", msgspec.Struct())]
    assert steps == ["FAILED", "END"]
