"""Records: a line holds whatever stacks and providers produced, and reads back the same."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutover.errors import Completed, Failed, Left, Pause, Refusal
from cutover.records import (
    EntryRecord,
    ErrorRecord,
    FrameRecord,
    ItemRecord,
    PlayRecord,
    RecordDamaged,
    RunRecord,
    TapeRecord,
    decode,
    encode,
    json_text,
)

STAMP = st.integers(0, 2**40)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
OUTCOMES = st.one_of(
    st.just(Completed()),
    st.just(Left()),
    st.builds(Refusal, st.integers(400, 499), TEXT, TEXT),
    st.builds(Pause, TEXT),
    st.builds(Failed, TEXT, st.sampled_from(["stack", "world", "configuration"]), TEXT),
)


def records(text: st.SearchStrategy[str]) -> st.SearchStrategy[RunRecord]:
    """Return lines whose strings are drawn from `text`, and whose bytes are any."""
    content = st.binary(max_size=9) | text.map(lambda one: one.encode("utf-8", "replace"))
    many = st.lists(text, max_size=2).map(tuple)
    items = st.lists(st.builds(ItemRecord.of, STAMP, content), max_size=3).map(tuple)
    frames = st.lists(st.builds(FrameRecord.of, STAMP, content), max_size=3).map(tuple)
    error = st.none() | st.builds(ErrorRecord, text, text, text)
    ends = st.sampled_from(["open", "done", "failed", "cut"])
    entry = st.builds(EntryRecord, text, text, text, STAMP, st.booleans(), items, ends, error)
    entries = st.lists(entry, max_size=3).map(tuple)
    tape = st.builds(TapeRecord, entries, many, st.none() | text)
    hows = st.sampled_from(["live", "tape", "nearest"])
    play = st.builds(PlayRecord, text, hows, st.none() | STAMP, st.none() | text)
    counts = st.dictionaries(text, STAMP, max_size=2)
    return st.builds(
        RunRecord,
        exchange=text,
        flow=text,
        path=text,
        role=st.sampled_from(["serving", "fallback", "shadow", "replay"]),
        policy=st.sampled_from(["live", "play"]),
        stack=text,
        assigned=text,
        served=text,
        at=STAMP,
        outcome=OUTCOMES,
        request=text,
        options=text,
        frames=frames,
        tape=st.none() | tape,
        plays=st.lists(play, max_size=2).map(tuple),
        nodes_us=counts,
        escaped=counts,
        versions=st.dictionaries(text, text, max_size=2),
        redacted=st.booleans(),
    )


@given(records(TEXT))
def test_a_record_reads_back_as_it_was_written(record: RunRecord) -> None:
    """On one line, whatever bytes and line ends stand in it."""
    line = encode(record)
    assert b"\n" not in line
    assert b"\r" not in line
    assert decode(line, RunRecord) == record


@given(records(st.text(st.characters(), max_size=4)))
def test_lone_surrogates_are_replaced_and_break_no_line(record: RunRecord) -> None:
    """A line of any strings can be read, and writing it again changes nothing."""
    line = encode(record)
    assert encode(decode(line, RunRecord)) == line


@given(st.binary(max_size=30))
def test_items_and_frames_keep_any_bytes(data: bytes) -> None:
    """As text where they are UTF-8, in base64 where they are not."""
    item = decode(encode(ItemRecord.of(7, data)), ItemRecord)
    assert item.data == data
    assert encode(FrameRecord.of(7, b"data: \xe4\xbd\xa0\n\n")).decode() == '[7,"data: 你\\n\\n"]'
    assert encode(FrameRecord.of(7, b"\xff")) == b'[7,{"b64":"/w=="}]'


def nested(depth: int) -> Any:
    """Return a list in a list in a list, so many times."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": None}, '{"b":1,"a":null}'),
        (math.nan, "null"),
        ("\ud800", '"(not stored: UnicodeEncodeError)"'),
        (nested(5000), '"(not stored: RecursionError)"'),
        (object(), '"(not stored: TypeError)"'),
    ],
    ids=["plain", "NaN", "lone surrogate", "deep nesting", "no JSON"],
)
def test_free_json_is_text_and_never_raises(value: Any, text: str) -> None:
    """What JSON cannot hold is named by its fault."""
    assert json_text(value) == text


def line() -> RunRecord:
    """Return a small line."""
    return RunRecord(
        exchange="e1",
        flow="chat",
        path="/chat/sse",
        role="serving",
        policy="live",
        stack="graph",
        assigned="graph",
        served="graph",
        at=1,
        outcome=Completed(),
        request="{}",
        options="{}",
    )


DAMAGED = {
    "empty": b"",
    "torn": encode(line())[:-3],
    "two in one": encode(line()) * 2,
    "another shape": b"[]",
    "a field missing": b'{"v":1,"exchange":"a"}',
    "invalid UTF-8": encode(line()).replace(b"chat", b"\xff"),
    "nested": b"[" * 100_000,
    "a later version": encode(line()).replace(b'"v":1', b'"v":2'),
    "no number": encode(line()).replace(b'"at":1', b'"at":NaN'),
}


@pytest.mark.parametrize("damaged", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_line_is_named_and_raises_nothing_else(damaged: bytes) -> None:
    """`RecordDamaged` with a reason."""
    with pytest.raises(RecordDamaged) as caught:
        decode(damaged, RunRecord)
    assert caught.value.reason


def test_fields_of_later_versions_are_passed_over() -> None:
    """A field that is added does not make old readers fail."""
    later = encode(line()).replace(b'"v":1', b'"v":1,"new":[1]')
    assert decode(later, RunRecord) == line()
