"""The journal: what is done is known again, what is not ours is not touched."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from compare.input.segments import CapturedLine
from cutover.replay.journal import (
    NAME,
    Counts,
    Header,
    InUse,
    NotAReplay,
    OtherReplay,
    ReplayJournal,
)
from cutover.replay.parts import Part

HEADER = Header(
    captures="c", stack="s:F", code="1", against="l:F", against_code="2", pace="full", limit=7
)
PART = Part("file:///c/a.jsonl.zst", 3, (CapturedLine(1, b"{}"),), 10, "")
COUNTS = Counts(exchanges=2, equal=1, skipped={"cancelled": 1})


def test_a_part_that_is_done_is_known_again(tmp_path: Path) -> None:
    """With its counts; another part is not done, nor is one that has grown."""
    with ReplayJournal(tmp_path / "out", HEADER) as journal:
        assert journal.done(PART) is None
        journal.note(PART, COUNTS)
    grown = Part(PART.segment, PART.number, (*PART.lines, CapturedLine(2, b"{}")), 20, "")
    other = Part(PART.segment, 4, PART.lines, 10, "")
    with ReplayJournal(tmp_path / "out", HEADER) as journal:
        assert journal.done(PART) == COUNTS
        assert journal.done(grown) is journal.done(other) is None


@pytest.mark.parametrize("left", [1, 20])
def test_a_note_that_was_being_written_is_forgotten(tmp_path: Path, left: int) -> None:
    """The part is done again, and noted behind what was whole."""
    with ReplayJournal(tmp_path, HEADER) as journal:
        journal.note(PART, COUNTS)
    path = tmp_path / NAME
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[1][:-left])
    other = Part("b", 0, (), 0, "")
    with ReplayJournal(tmp_path, HEADER) as journal:
        assert journal.done(PART) == COUNTS
        journal.note(other, Counts())
    with ReplayJournal(tmp_path, HEADER) as journal:
        assert (journal.done(PART), journal.done(other)) == (COUNTS, Counts())


def test_a_torn_header_begins_anew(tmp_path: Path) -> None:
    """Nothing was done yet."""
    (tmp_path / NAME).write_bytes(msgspec.json.encode(HEADER)[:-3])
    with ReplayJournal(tmp_path, HEADER) as journal:
        assert journal.done(PART) is None
        journal.note(PART, COUNTS)
    with ReplayJournal(tmp_path, HEADER) as journal:
        assert journal.done(PART) == COUNTS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("captures", "d"),
        ("stack", "t:F"),
        ("code", "9"),
        ("against", "g:F"),
        ("against_code", "9"),
        ("pace", "recorded"),
        ("only", ("x",)),
        ("limit", None),
        ("v", 2),
    ],
)
def test_another_replay_does_not_go_on_here(tmp_path: Path, name: str, value: object) -> None:
    """Results of two replays are never mixed; the message names what differs."""
    with ReplayJournal(tmp_path, HEADER):
        pass
    other = msgspec.structs.replace(HEADER, **{name: value})
    with pytest.raises(OtherReplay, match=name.replace("_", " of ")):
        ReplayJournal(tmp_path, other)


def test_a_place_with_something_else_is_left_alone(tmp_path: Path) -> None:
    """It may be the captures."""
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(NotAReplay):
        ReplayJournal(tmp_path, HEADER)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_two_replays_do_not_write_to_one_place(tmp_path: Path) -> None:
    """The second is refused while the first runs."""
    with ReplayJournal(tmp_path, HEADER), pytest.raises(InUse):
        ReplayJournal(tmp_path, HEADER)
    with ReplayJournal(tmp_path, HEADER):
        pass
