"""Shapes of an import: which rows become which turns and memories, and why others do not."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.stores import MemoryEntry, Turn
from cutover.imports import Rows, Shaped, entries_of_rows, open_rows, turns_of_rows
from cutover.imports.shapes import (
    BadMapping,
    ColumnMissing,
    ColumnRepeated,
    LeftOut,
    Rejected,
)
from cutover.imports.source import SourceRow

AT = 1_767_323_045


def rows(values: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> Rows:
    """Make a source of values."""
    named = None if columns is None else tuple(columns)
    return Rows("old.csv", named, (SourceRow(line, one) for line, one in enumerate(values, 2)))


def turns(*values: Mapping[str, Any], names: Sequence[str] = ()) -> list[Shaped[Turn]]:
    """Shape values as turns."""
    return [shaped for _, shaped in turns_of_rows(rows(values), names, lambda turn: turn)]


def entries(*values: Mapping[str, Any], names: Sequence[str] = ()) -> list[Shaped[MemoryEntry]]:
    """Shape values as memories."""
    return [shaped for _, shaped in entries_of_rows(rows(values), names, lambda entry: entry)]


SAID = {"message_id": "m1", "chat_id": "c1", "role": "user", "content": "hi"}
TURN = Turn(message_id="m1", chat_id="c1", role="user", content="hi")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, {}),
        ({"role": "Human", "user_id": 7, "reply_to": ""}, {"user_id": "7"}),
        ({"role": "AI", "message_id": UUID(int=1)}, {"role": "assistant"}),
        ({"content": [{"type": "text", "text": "h"}, "i", {"type": "image_url"}]}, {}),
        ({"data": '{"ok":true}', "unknown": 1}, {"data": {"ok": True}}),
        ({"at": f"{AT}.75"}, {"at": AT}),
        ({"at": AT * 1_000 + 750}, {"at": AT}),
        ({"at": "2026-01-02T04:04:05+01:00"}, {"at": AT}),
        ({"at": "2026-01-02 03:04:05"}, {"at": AT}),
        ({"at": datetime(2026, 1, 2, 3, 4, 5)}, {"at": AT}),  # noqa: DTZ001 - as databases return
        ({"at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)}, {"at": AT}),
        ({"at": date(2026, 1, 2)}, {"at": AT - 11_045}),
        ({"at": "20260102"}, {"at": AT - 11_045}),
        ({"at": 20260102030405}, {"at": AT}),
        ({"at": AT * 10**6}, {"at": AT}),
        ({"at": str(AT * 10**9)}, {"at": AT}),
        ({"role": "system"}, LeftOut("system message")),
        ({"content": " \n"}, LeftOut("without text")),
        ({"content": None}, LeftOut("without text")),
        ({"role": None}, Rejected("role: no value in 'role'")),
        ({"role": "bot"}, "role: 'bot' is none of user, human, assistant, ai, developer"),
        ({"chat_id": ""}, Rejected("chat_id: no value in 'chat_id'")),
        ({"chat_id": "c" * 129}, "chat_id: Expected `str` of length <= 128"),
        ({"chat_id": "a\nb"}, "chat_id: Expected `str` matching"),
        ({"user_id": 1.5}, "user_id: Expected `str`, got `float`"),
        ({"content": 5}, Rejected("content: a int where a text is due")),
        ({"content": "a\0b"}, "content: a NUL, or bytes that are no UTF-8"),
        ({"content": "a\udcffb"}, "content: a NUL, or bytes that are no UTF-8"),
        ({"user_name": 5}, "row: Expected `str | null`, got `int` - at `$.user_name`"),
        ({"at": "yesterday"}, "at: 'yesterday' is no time since 1970, such as 1767323045 or"),
        ({"at": float("nan")}, "at: nan is no time"),
        ({"at": True}, "at: True is no time"),
        ({"at": "99999999"}, "at: '99999999' is no time since 1970"),
        ({"at": "0001-01-01"}, "at: '0001-01-01' is no time since 1970"),
        ({"at": "inf"}, "at: 'inf' is no time"),
        ({"at": 10**30}, "at: 1000000000000000000000000000000 is no time"),
        ({"at": -(2**64)}, "at: -18446744073709551616 is no time"),
        ({"data": "[1"}, Rejected("data: no JSON object")),
        ({"data": [1]}, "row: Expected `object | null`, got `array`"),
        ({"data": {"a": "x" * 65_536}}, Rejected("data: data_too_large")),
        ({"data": {"a": "\0"}}, Rejected("data: text")),
    ],
)
def test_a_row_becomes_a_turn_or_says_why_not(more: dict[str, Any], expected: object) -> None:
    """Ids may be numbers, times come in every form, and nothing is guessed of a role."""
    (found,) = turns(SAID | more)
    if isinstance(expected, str):
        assert isinstance(found, Rejected)
        assert found.reason.startswith(expected)
    elif isinstance(expected, dict):
        made = {"message_id": str(more.get("message_id", "m1"))} | expected
        assert found == msgspec.structs.replace(TURN, **made)
    else:
        assert found == expected


def test_columns_are_named() -> None:
    """Objects in objects by dots, unless a column has a dot in its name."""
    value = {"who": {"id": "u"}, "a.b": "c1", "role": "user", "content": "hi", "message_id": "m1"}
    (found,) = turns(value, names=("user_id=who.id", "chat_id=a.b", "at=who.since.when"))
    assert found == msgspec.structs.replace(TURN, user_id="u")
    there = ("id", "session", "role", "content")
    with pytest.raises(
        ColumnMissing,
        match=r"^'old.csv', line 1: no column 'sesion' for 'chat_id'; did you mean 'session'\? "
        "there are 'id', 'session', 'role', 'content': use --map chat_id=COLUMN$",
    ):
        turns_of_rows(rows((), there), ("chat_id=sesion",), lambda turn: turn)
    with pytest.raises(ColumnMissing, match="no column 'when' for 'at'"):
        turns_of_rows(rows((), there), ("chat_id=session", "at=when"), lambda turn: turn)
    rows_of_a_database = rows([value | {"chat_id": "c1"}], ("who", *SAID))
    (one,) = turns_of_rows(rows_of_a_database, ("user_id=who.id",), lambda turn: turn)
    assert one[1] == found
    with pytest.raises(ColumnRepeated, match=r"^'old.csv' has several columns 'id': name one"):
        turns_of_rows(rows((), ("id", *there)), ("chat_id=id",), lambda turn: turn)
    for wrong in ("chat=session", "chat_id", "chat_id=", "=x"):
        with pytest.raises(BadMapping, match="OURS is of: message_id, role, content, chat_id"):
            turns_of_rows(rows((), there), (wrong,), lambda turn: turn)


def test_a_reply_is_linked_to_what_it_answers() -> None:
    """Of several in a row the first, since of replies to one message only the last is read."""
    said = [
        ("c1", "user", "ann", None),
        ("c2", "user", None, None),
        ("c1", "assistant", None, None),
        ("c1", "assistant", None, None),
        ("c2", "assistant", "ben", None),
        ("c1", "user", None, None),
        ("c1", "assistant", None, "elsewhere"),
        ("c3", "assistant", None, None),
    ]
    found = turns(
        *(
            {"chat_id": chat, "role": role, "content": "x", "user_id": user, "reply_to": to}
            | {"message_id": str(number)}
            for number, (chat, role, user, to) in enumerate(said)
        )
    )
    links = [(one.user_id, one.reply_to) for one in found if isinstance(one, Turn)]
    assert links == [
        ("ann", None),
        (None, None),
        ("ann", "0"),
        ("ann", None),
        ("ben", "1"),
        (None, None),
        (None, "elsewhere"),
        (None, None),
    ]


def test_an_id_that_is_missing_is_the_same_each_time_and_no_other_rows() -> None:
    """Of a turn by its place, chat, role, text and time; of a memory by user and text."""
    row: dict[str, Any] = {"chat_id": "c1", "role": "user", "content": "hi"}
    same = [row, row, row | {"content": "ho"}, row | {"chat_id": "c2"}, row | {"at": 1}]
    first, again = turns(*same), turns(*same, row)
    assert first == again[:5]
    assert len({one.message_id for one in again if isinstance(one, Turn)}) == 6
    known = {"user_id": "u", "text": "tea"}
    (one, two, other) = entries(known, known | {"relation": "x"}, known | {"user_id": "v"})
    assert isinstance(one, MemoryEntry)
    assert isinstance(two, MemoryEntry)
    assert isinstance(other, MemoryEntry)
    assert one.memory_id == two.memory_id != other.memory_id


def test_a_row_becomes_a_memory_or_says_why_not() -> None:
    """All fields of an entry can be named."""
    row = {"id": 5, "owner": "u", "fact": "likes tea", "score": "0.5", "session_id": "s"}
    names = ("memory_id=id", "user_id=owner", "text=fact", "confidence=score")
    (found,) = entries(row | {"kind": "plan"}, names=names)
    assert found == MemoryEntry(
        memory_id="5", user_id="u", text="likes tea", session_id="s", confidence=0.5, kind="plan"
    )
    for more, expected in (
        ({"fact": " "}, LeftOut("without text")),
        ({"owner": None}, Rejected("user_id: no value in 'owner'")),
        ({"score": "x"}, "row: Expected `float | null`, got `str`"),
        ({"score": "1.5"}, Rejected("confidence: 1.5 is not from 0 to 1")),
        ({"score": -1}, Rejected("confidence: -1.0 is not from 0 to 1")),
        ({"score": float("nan")}, Rejected("confidence: nan is not from 0 to 1")),
        ({"kind": "taste"}, "kind: 'taste' is none of identity, preference, plan, relation"),
    ):
        (found,) = entries(row | more, names=names)
        if isinstance(expected, str):
            assert isinstance(found, Rejected)
            assert found.reason.startswith(expected)
        else:
            assert found == expected


WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
IDS = st.text(st.characters(exclude_categories=["Cs"], min_codepoint=32), min_size=1, max_size=9)
TURNS = st.builds(
    Turn,
    message_id=IDS,
    role=st.just("user"),
    content=WORDS.filter(lambda text: bool(text.strip())),
    chat_id=IDS,
    user_id=st.none() | IDS,
    user_name=st.none() | WORDS,
    reply_to=st.none() | IDS,
    data=st.none() | st.dictionaries(WORDS, st.integers(-9, 9) | WORDS),
    at=st.none() | st.integers(10**8, 2**32),  # of eight digits it is a date
)


@pytest.mark.slow
@given(st.lists(TURNS, min_size=1))
def test_what_is_written_to_a_file_comes_back(written: list[Turn]) -> None:
    """Whatever the texts: as JSON lines, and as CSV."""
    plain = [msgspec.to_builtins(turn) for turn in written]
    lines = b"".join(msgspec.json.encode(one) + b"\n" for one in plain)
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, Turn.__struct_fields__)
    writer.writeheader()
    for one in plain:
        data = {} if "data" not in one else {"data": msgspec.json.encode(one["data"]).decode()}
        writer.writerow(one | data)
    with TemporaryDirectory() as folder:
        for name, content in (("a.jsonl", lines), ("a.csv", table.getvalue().encode())):
            path = Path(folder) / name
            path.write_bytes(content)
            with open_rows(str(path)) as source:
                found = [one for _, one in turns_of_rows(source, (), lambda turn: turn)]
            assert found == written
