"""What single events of a wire say, and which of a stream's texts they make longer."""

from __future__ import annotations

import msgspec
import pytest

from contract.flows.chat import CHAT
from contract.flows.companion import COMPANION
from contract.flows.pipeline import PIPELINE
from contract.flows.session import SESSION
from contract.wire import Dialect, EventDecoder, WireReader, built_in

DECODERS = {
    **{name: EventDecoder(dialect) for name, dialect in built_in().items()},
    **{spec.name: spec.decoder for spec in (CHAT, COMPANION, PIPELINE, SESSION)},
    "plain": EventDecoder(Dialect(payload="text", terminal=("[END]",), skip=("ping",))),
}


@pytest.mark.parametrize(
    ("wire", "sse_name", "data", "name"),
    [
        ("chat", "", b'{"step":"SEND","content":"a"}', "SEND"),
        ("chat", "", b'{"content":"a"}', ""),
        ("chat", "", b"{oops", ""),
        ("companion", "done", b'{"status":"completed"}', "done"),
        ("companion", "", b"{}", "message"),
        ("session", "", b'{"type":"text","data":{"content":"a"}}', "text"),
        ("openai", "", b'{"choices":[]}', "chunk"),
        ("openai", "", b" [DONE] ", "[DONE]"),
        ("ndjson", "", b'{"done":false}', "message"),
        ("ndjson", "", b'{"done":true}', "done"),
        ("anthropic-messages", "x", b'{"type":"message_stop"}', "message_stop"),
        ("anthropic-messages", "ping", b"{}", "ping"),
        ("plain", "", b"hello", "message"),
        ("plain", "ping", b"", "ping"),
    ],
)
def test_a_name_is_in_the_payload_else_the_sse_field_else_the_default(
    wire: str, sse_name: str, data: bytes, name: str
) -> None:
    """On every wire, also of payloads that cannot be decoded."""
    assert DECODERS[wire].event(sse_name, data).name == name


@pytest.mark.parametrize(
    ("wire", "data", "ends", "failure"),
    [
        ("chat", b'{"step":"END"}', True, None),
        ("chat", b'{"step":"FAILED","code":"x"}', False, "x"),
        ("chat", b'{"step":"FAILED"}', False, ""),
        ("session", b'{"type":"error","data":{"code":"x"}}', True, "x"),
        ("pipeline", b'{"success":false,"errors":[{"code":"x"},{"code":"y"}]}', True, "y"),
        ("openai", b"[DONE]", True, None),
        ("openai", b'{"choices":[],"error":{"code":null,"type":"t"}}', False, "t"),
        ("openai", b'{"choices":[],"error":null}', False, None),
        ("ndjson", b'{"error":"busy"}', False, ""),
        (
            "anthropic-messages",
            b'{"type":"error","error":{"type":"overloaded"}}',
            False,
            "overloaded",
        ),
        ("plain", b"[END]", True, None),
        ("plain", b"the [END]", False, None),
    ],
)
def test_endings_and_failures_may_be_events_parts_or_literals(
    wire: str, data: bytes, failure: str | None, *, ends: bool
) -> None:
    """A failure without a code has an empty one."""
    event = DECODERS[wire].event("", data)
    assert (event.ends, event.failure) == (ends, failure)


@pytest.mark.parametrize(
    ("wire", "data", "text"),
    [
        ("chat", b'{"step":"SEND","content":"a","reason_content":"r"}', "a"),
        ("chat", b'{"step":"SEND"}', None),
        ("openai", b'{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}', "ab"),
        ("openai", b'{"choices":[{"delta":{"content":null}}]}', None),
        ("plain", b"a b", "a b"),
        ("plain", b"\xff", "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_texts_are_joined_in_order(wire: str, data: bytes, text: str | None) -> None:
    """Of all places of the answer, and of no other track."""
    assert DECODERS[wire].event("", data).text() == text


def test_a_cumulative_text_grows_only_beyond_what_was_sent() -> None:
    """Also where deltas came before it, as the session's last event repeats them."""
    reader = WireReader(SESSION.decoder)
    frames = (
        b'data: {"type":"text","data":{"content":"ab"}}\n\n'
        b'data: {"type":"done","data":{"final_message":{"content":"ab"}}}\n\n'
        b'data: {"type":"done","data":{"final_message":{"content":"abc"}}}\n\n'
    )
    assert [reader.grown(event) for event in reader.feed(frames)] == [{"text"}, set(), {"text"}]


def test_a_reader_takes_bytes_cut_anywhere() -> None:
    """Keep-alives are counted, and a last line counts without its end."""
    for wire, body, keepalives in (
        ("chat", b': hi\n\ndata: {"step":"ACCEPT"}\n\ndata: {"step":"END"}\n\ndata: x', 1),
        ("ndjson", b'{"done":false}\n\n{"done":true}', 1),
    ):
        reader = WireReader(DECODERS[wire])
        events = [it for at in range(len(body)) for it in reader.feed(body[at : at + 1])]
        events += reader.flush()
        assert [it.ends for it in events] == [False, True]
        assert reader.keepalives == keepalives


def test_an_undecodable_payload_keeps_its_error() -> None:
    """And has no value, no text and no ending, unless the SSE field names one."""
    event = DECODERS["companion"].event("done", b"\xff")
    assert isinstance(event.error, (msgspec.DecodeError, UnicodeDecodeError))
    assert (event.value, event.texts(), event.ends) == (None, [], True)


def test_tool_calls_are_seen_by_name_or_arguments() -> None:
    """Where the dialect says that there are any."""
    call = b'{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{"}}]}}]}'
    openai = DECODERS["openai"].event("", call)
    assert openai.decoder.calls_tool(openai.value)
    assert [it.track for it in openai.texts()] == ["arguments"]
    assert not DECODERS["chat"].calls_tool(openai.value)
