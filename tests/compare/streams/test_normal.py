"""The normal form: what every key of a dialect does to a stream."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from compare.streams.dialects import RecordedDialect
from compare.streams.events import NOT_JSON, EventReader, read_stream
from compare.streams.normal import NormalStream
from contract.wire import dialect_of
from tests.support.recorded_bodies import sse


def read(text: str, body: bytes) -> NormalStream:
    """Bring a body into normal form."""
    return RecordedDialect(dialect_of(text, "d.toml", "d")).normaliser.stream(body)


def events(text: str, body: bytes) -> list[dict[str, Any]]:
    """Give the events in normal form."""
    return [msgspec.json.decode(frame) for _, frame in read(text, body).frames]


def test_an_event_is_called_as_the_sse_field_says_or_message() -> None:
    """Where the dialect has no path for it."""
    body = sse({}, "begin") + sse({})
    assert [event["@event"] for event in events("", body)] == ["begin", "message"]


def test_a_name_in_the_payload_is_taken_from_it() -> None:
    """Without one, the SSE field is the name, then the default; it is noted beside the name."""
    body = sse({"a": {"t": "x"}}, "no") + sse({"a": {}}, "sse") + sse({"b": 1})
    text = "[event]\npath = 'a.t'\ndefault = 'other'"
    assert events(text, body) == [
        {"@event": "x", "@lines": ["no"]},
        {"@event": "sse", "@lines": ["sse"], "a": {}},
        {"@event": "other", "b": 1},
    ]


def test_names_are_translated() -> None:
    """What is no string is looked up as JSON."""
    text = "[event]\npath = 't'\nnames = { 7 = 'seven', true = 'yes', a = 'b' }"
    body = b"".join(sse({"t": name}) for name in (7, True, "a", [1]))
    assert [event["@event"] for event in events(text, body)] == ["seven", "yes", "b", "[1]"]


def test_text_can_be_all_there_is() -> None:
    """No JSON: the payload is the text, the literal ends it."""
    body = b"data: Hel\n\ndata: lo\n\ndata: [END]\n\n"
    text = 'payload = "text"\nterminal = ["[END]"]'
    assert events(text, body) == [
        {"@event": "message", "@text": "Hel"},
        {"@event": "message", "@text": "lo"},
        {"@event": "[END]"},
    ]
    named = RecordedDialect(dialect_of(text, "d.toml", "d"))
    stream = named.normaliser.stream(body)
    assert read_stream(EventReader(named.wire(stream.names)), stream.frames).text == "Hello"


def test_a_payload_that_is_no_object_stands_under_value() -> None:
    """So a path can lead to it."""
    assert events('[text]\n"*" = "value"', b'data: "x"\n\ndata: [1]\n\n') == [
        {"@event": "message", "@text": "x"},
        {"@event": "message", "value": [1]},
    ]


def test_several_places_of_text_are_joined_in_order() -> None:
    """Only text is taken: whatever else stands there is compared as it is."""
    text = '[text]\n"*" = ["a[*].t", "b"]'
    assert events(text, sse({"b": "3", "a": [{"t": "1"}, {"t": 5}, {"t": "2"}]})) == [
        {"@event": "message", "@text": "123", "a": [{"t": 5}]}
    ]


def test_an_entry_of_its_own_stands_before_the_star() -> None:
    """For text; ignored paths of both count."""
    text = '[text]\n"*" = "t"\nx = "u"\n[ignore]\n"*" = ["i"]\nx = ["j"]'
    body = sse({"t": "1", "u": "2", "i": 1, "j": 2}, "x") + sse({"t": "1", "i": 1, "j": 2}, "y")
    assert events(text, body) == [
        {"@event": "x", "@text": "2", "t": "1"},
        {"@event": "y", "@text": "1", "j": 2},
    ]


def test_what_is_skipped_is_no_event() -> None:
    """Keep-alives that are events."""
    assert events('skip = ["ping"]', sse({}, "ping") + sse({}, "x")) == [{"@event": "x"}]


def test_empties_count_unless_they_are_ignored() -> None:
    """An event that says nothing stays one."""
    body = sse({"a": None, "b": {}, "c": [{"d": None}], "e": 0}, "x") + sse({"a": None}, "y")
    assert events("", body)[0] == {"@event": "x", "a": None, "b": {}, "c": [{"d": None}], "e": 0}
    assert events('empty = "ignore"', body) == [{"@event": "x", "e": 0}, {"@event": "y"}]


def test_growth_can_differ_from_event_to_event() -> None:
    """Deltas, and the whole again at the end."""
    text = '[text]\npiece = "t"\nwhole = { path = "t", growth = "cumulative" }'
    named = RecordedDialect(dialect_of(text, "d.toml", "d"))
    body = sse({"t": "a"}, "piece") + sse({"t": "b"}, "piece") + sse({"t": "ab"}, "whole")
    stream = named.normaliser.stream(body)
    read = read_stream(EventReader(named.wire(stream.names)), stream.frames)
    assert (read.text, read.shrank) == ("ab", None)


@pytest.mark.parametrize(
    ("kind", "sound", "wrong"),
    [
        ("string", "x", 1),
        ("number", 1.5, "1"),
        ("number", 0, False),
        ("boolean", True, 1),
        ("object", {}, []),
        ("array", [], {}),
    ],
)
def test_what_is_required_must_be_there_and_of_its_kind(
    kind: str, sound: object, wrong: object
) -> None:
    """Null is of none."""
    text = f'[required]\nx = {{ "a[*].b" = "{kind}" }}'
    body = b"".join(sse({"a": [{"b": sound}, {"b": value}]}, "x") for value in (sound, wrong, None))
    faults = [event.get("@fault") for event in events(text, body + sse({"a": []}, "x"))]
    wants = [".a[*].b", f"is no {kind}"]
    assert faults == [None, wants, wants, [".a[*].b", "is missing"]]


def test_what_is_required_of_any_event_is_required_of_those_without_an_entry() -> None:
    """As in the other tables by event name."""
    text = '[required]\n"*" = { n = "number" }\nx = { a = "string" }'
    body = sse({"n": 1}, "y") + sse({}, "y") + sse({"a": "b"}, "x")
    faults = [event.get("@fault") for event in events(text, body)]
    assert faults == [None, [".n", "is missing"], None]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{", "is not JSON: input data was truncated"),
        (b"[" * 99_999, "is not JSON: nested too deeply"),
        (b'"\xe4\xbb"', "is not UTF-8 at byte 1"),
        (b'"\\ud83d"', "is not JSON"),
        (b'{"a":1e999}', "is not JSON: number out of range"),
    ],
)
def test_an_illegible_payload_says_why(data: bytes, why: str) -> None:
    """And what stood there."""
    [event] = events("", b"data: " + data + b"\n\n")
    assert event["@event"] == NOT_JSON
    assert event["@fault"][1].startswith(why)
    assert event["value"] == data.decode("utf-8", "replace")
    [named] = events("", b"event: x\ndata: " + data + b"\n\n")
    assert named["@event"] == "x"


def test_keys_of_the_normal_form_cannot_be_forged() -> None:
    """A payload that has them is not believed."""
    forged = {"@event": "end", "@text": "x", "@fault": ["", "y"], "a": 1}
    assert events("", sse(forged)) == [{"@event": "message", "a": 1}]


def test_a_number_of_any_size_is_read() -> None:
    """JSON has no limit."""
    assert events("", b'data: {"a":' + b"9" * 40 + b"}\n\n") == [
        {"@event": "message", "a": int("9" * 40)}
    ]


def test_outcomes_are_read_from_the_stream() -> None:
    """Without a terminal event declared, an end is an end, but an empty body is no stream."""
    assert read("", sse({})).outcome == "completed"
    assert read("", b"").outcome == read("", b": c\n\n").outcome == "truncated"
    assert read('terminal = ["end"]', sse({}, "x")).outcome == "truncated"
    assert read('terminal = ["end"]', sse({}, "x") + sse({}, "end")).outcome == "completed"
    failed = read('[errors]\ncode = ["a", "b.c"]', sse({"b": {"c": 7}}, "error"))
    assert failed.outcome == "failed"
    assert failed.error is not None
    assert failed.error.code == "7"


def test_a_part_that_is_null_is_none() -> None:
    """Chunks say in each that they are not the last; also where nulls count."""
    text = 'terminal = ["end"]\n[text]\n"*" = "t"\n[parts]\nfinish = "f"'
    assert events(text, sse({"t": "x", "f": None}) + sse({"t": "y", "f": "stop"})) == [
        {"@event": "message", "@text": "x"},
        {"@event": "message", "@text": "y"},
        {"@event": "finish", "f": "stop"},
    ]


def test_an_empty_terminal_event_stays() -> None:
    """Also where frames that only hold parts are no events."""
    text = 'terminal = ["message"]\n[parts]\nusage = "usage"'
    assert events(text, sse({"usage": {"n": 1}})) == [
        {"@event": "message"},
        {"@event": "usage", "n": 1},
    ]
