"""Records: nothing that a stack, a tool or a service says breaks a line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.records import (
    PlayRecord,
    RequestRecord,
    RunRecord,
    decode_run,
    encode_run,
    raw_values,
)
from tests.support.records import a_run, an_entry
from tests.support.struct_values import JSON

if TYPE_CHECKING:
    from collections.abc import Sequence


def run_with(raws: Sequence[bytes]) -> RunRecord:
    """Return a run that holds five values as they came: one in every field kept raw."""
    body, options, args, item, asked = map(msgspec.Raw, raws)
    entry = an_entry(item, args=args)
    play = PlayRecord(port="model", op="stream", site="m", how="nearest", args=asked)
    request = RequestRecord(body, options)
    return a_run(request=request, tape=(entry,), plays=(play,))


def written(raws: Sequence[bytes]) -> list[bytes]:
    """Return the values as they stand in what is read of a line."""
    line = encode_run(run_with(raws))
    assert line.splitlines() == [line.removesuffix(b"\n")]
    record = decode_run(line)
    return list(map(bytes, raw_values(record.request, record.tape or (), record.plays)))


SPACED = st.builds(
    lambda value, indent, newline: json.dumps(value, indent=indent).replace("\n", newline).encode(),
    JSON | st.text('\0\n\r\u2028\x85"\\\U0001f600'),
    st.none() | st.sampled_from([0, 2, "\t"]),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
"""JSON with white space of every kind between its values."""


@given(st.lists(SPACED, min_size=5, max_size=5))
def test_values_on_several_lines_are_written_on_one(raws: list[bytes]) -> None:
    """They are read back equal, whichever field they stand in."""
    assert list(map(json.loads, written(raws))) == list(map(json.loads, raws))


@given(
    st.lists(st.binary(max_size=20) | st.text().map(str.encode) | SPACED, min_size=5, max_size=5)
)
def test_bytes_that_are_no_json_break_no_line(raws: list[bytes]) -> None:
    """What can be read is read back equal; what cannot says so."""
    for raw, read in zip(raws, written(raws), strict=True):
        try:
            expected = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            msgspec.json.decode(read)
        else:
            assert msgspec.json.decode(read) == expected


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize(
    ("raw", "read"),
    [
        (b'{"type":\n "object"}', {"type": "object"}),
        (b'"\\u0000\\n"', "\0\n"),
        (b'"a\\ud83d"', "a\ufffd"),
        (b'{"\\ude00": ["\\ud83d\\ude00"]}', {"\ufffd": ["\U0001f600"]}),
        (b'"\xff"', "\ufffd"),
        (b'"a\nb"', "a\nb"),
        (b"[" * 300 + b"\n" + b"]" * 300, json.loads("[" * 300 + "]" * 300)),
        (b'"' + b"\\n" * 5_000_000 + b'"', "\n" * 5_000_000),
    ],
    ids=[
        "newline",
        "NUL",
        "half a pair",
        "half in a key",
        "no UTF-8",
        "raw newline",
        "deep",
        "10 MB",
    ],
)
def test_each_field_holds_what_can_be_said(at: int, raw: bytes, read: object) -> None:
    """White space goes; what is no text becomes U+FFFD; the rest is as it was."""
    raws = [b"{}"] * 5
    raws[at] = raw
    assert msgspec.json.decode(written(raws)[at]) == read


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "no JSON"),
        (b'{"a":', "no JSON"),
        (b'1,"tape":[]', "no JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deep"),
    ],
    ids=["nothing", "torn", "fields of its own", "deep"],
)
def test_what_cannot_be_written_says_so(raw: bytes, why: str) -> None:
    """With its size and a digest, so that two such values still differ."""
    for read in written([raw] * 5):
        told = msgspec.json.decode(read)
        assert (told["unwritable"], told["bytes"], len(told["digest"])) == (why, len(raw), 16)


def test_texts_with_half_a_pair_are_written() -> None:
    """A name that is no UTF-8 costs no record."""
    run = a_run(nodes={"a\ud83d": 1}, frames=((0, "\ude00"),))
    read = decode_run(encode_run(run))
    assert (read.nodes, read.frames) == ({"a\ufffd": 1}, ((0, "\ufffd"),))
