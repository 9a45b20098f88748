"""Recordings: which streams there are, which are pairs, and what cannot be read."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from pathlib import Path

import pytest

from compare.input.damage import CapturesUnreadable, Damage
from compare.input.recordings import RecordedStream, Recordings, pairs_of


def jsonl(path: Path, *rows: object) -> Path:
    """Write lines of JSON."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def bodies(recordings: Recordings) -> dict[str, bytes | None]:
    """Read everything; None for damage."""
    read = {name: recordings.read(name) for name in recordings.ids}
    return {name: x.body if isinstance(x, RecordedStream) else None for name, x in read.items()}


def test_a_folder_holds_a_stream_a_file_and_a_stream_a_line(tmp_path: Path) -> None:
    """By their path in the folder, and by their ids; anything else lies there unread."""
    (tmp_path / "day").mkdir()
    (tmp_path / "day" / "a.sse").write_bytes(b"A")
    (tmp_path / "b.ndjson").write_bytes(b"")
    (tmp_path / "notes.md").write_bytes(b"?")
    jsonl(tmp_path / "c.jsonl", {"id": "x", "body": "X€"}, {"id": 7, "body": "", "more": 1})
    recordings = Recordings(tmp_path)
    assert bodies(recordings) == {"day/a.sse": b"A", "b.ndjson": b"", "x": "X€".encode(), "7": b""}
    assert recordings.size == 1 + (tmp_path / "c.jsonl").stat().st_size


def test_times_come_with_a_line(tmp_path: Path) -> None:
    """A moment an event."""
    recordings = Recordings(jsonl(tmp_path / "a.jsonl", {"id": "x", "body": "", "times": [1, 2]}))
    read = recordings.read("x")
    assert isinstance(read, RecordedStream)
    assert read.times == (1, 2)


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n \n"])
def test_a_last_line_needs_no_end(tmp_path: Path, end: str) -> None:
    """Nor do blank lines hurt."""
    (tmp_path / "a.jsonl").write_bytes(f'{{"id":"x","body":"1"}}{end}'.encode())
    assert bodies(Recordings(tmp_path)) == {"x": b"1"}


def test_lines_that_are_no_recording_are_damage(tmp_path: Path) -> None:
    """Torn, without an id, or with an id and no body: counted and named, the rest is read."""
    good = b'{"id":"x","body":"1"}\n'
    (tmp_path / "a.jsonl").write_bytes(
        b'{"body":"1"}\n\xff\n' + good + b'{"id":"y"}\n{"id":"z","body":"1'
    )
    recordings = Recordings(tmp_path / "a.jsonl")
    assert [damage.detail.split(":")[0] for damage in recordings.damage] == [
        "line 1",
        "line 2",
        "line 5",
    ]
    assert bodies(recordings) == {"x": b"1", "y": None}
    damage = recordings.read("y")
    assert isinstance(damage, Damage)
    assert "missing required field `body`" in damage.detail


def test_half_a_character_is_damage_wherever_it_stands(tmp_path: Path) -> None:
    """In unused keys, too: a file that is no text is no recording."""
    (tmp_path / "a.jsonl").write_bytes(
        b'{"id":"x","body":"1","note":"\xe5\x8c"}\n{"id":"y","body":"2","note":"\xe5\x8c\x97"}\n'
    )
    recordings = Recordings(tmp_path / "a.jsonl")
    assert [(damage.kind, damage.detail[:7]) for damage in recordings.damage] == [
        ("broken", "line 1:")
    ]
    assert bodies(recordings) == {"y": b"2"}


def test_a_byte_order_mark_is_taken_off(tmp_path: Path) -> None:
    """Once, at the very start; of a body in a file of its own the wire's rules hold."""
    line = b'{"id":"%s","body":"1"}\n'
    (tmp_path / "a.jsonl").write_bytes(
        BOM_UTF8 + line % b"x" + line % b"y" + BOM_UTF8 + line % b"z"
    )
    recordings = Recordings(tmp_path / "a.jsonl")
    assert bodies(recordings) == {"x": b"1", "y": b"1"}
    assert [damage.detail[:7] for damage in recordings.damage] == ["line 3:"]


def test_a_file_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    """Links that lead nowhere; a folder may be called like a file; an empty file is torn."""
    jsonl(tmp_path / "a.jsonl", {"id": "x", "body": "1"})
    (tmp_path / "b.jsonl").symlink_to(tmp_path / "nowhere")
    (tmp_path / "c.sse").symlink_to(tmp_path / "nowhere")
    (tmp_path / "d.jsonl").touch()
    (tmp_path / "e.sse").mkdir()
    recordings = Recordings(tmp_path)
    kinds = [(damage.kind, Path(damage.place).name) for damage in recordings.damage]
    assert kinds == [("unreadable", "b.jsonl"), ("torn", "d.jsonl")]
    assert bodies(recordings) == {"x": b"1", "c.sse": None}
    damage = recordings.read("c.sse")
    assert isinstance(damage, Damage)
    assert (damage.kind, damage.detail) == ("unreadable", "No such file or directory")
    assert recordings.size == (tmp_path / "a.jsonl").stat().st_size


def test_devices_called_like_files_are_damage(tmp_path: Path) -> None:
    """They may never end; in a folder, and named themselves."""
    for name in ("a.jsonl", "b.sse"):
        (tmp_path / name).symlink_to("/dev/null")
    told = [Recordings(place).damage for place in (tmp_path, tmp_path / "b.sse")]
    assert [(one.kind, Path(one.place).name) for damage in told for one in damage] == [
        ("unreadable", "a.jsonl"),
        ("unreadable", "b.sse"),
        ("unreadable", "b.sse"),
    ]
    assert told[0][0].detail == "a device, not a file: it is not read"


def test_an_id_that_stands_twice_is_ambiguous(tmp_path: Path) -> None:
    """Both places are named."""
    row = {"id": "x", "body": ""}
    with pytest.raises(CapturesUnreadable, match=r"'x' is ambiguous: .*line 1 and .*line 2"):
        Recordings(jsonl(tmp_path / "a.jsonl", row, row))


def test_what_is_not_there_or_no_recording_is_refused(tmp_path: Path) -> None:
    """Said plainly."""
    with pytest.raises(CapturesUnreadable, match="there is nothing there"):
        Recordings(tmp_path / "nowhere")
    (tmp_path / "a.pdf").write_bytes(b"")
    with pytest.raises(CapturesUnreadable, match=r"a file of \.sse, \.ndjson, \.txt, \.jsonl"):
        Recordings(tmp_path / "a.pdf")


def test_equal_ids_are_pairs_and_what_is_left_has_none(tmp_path: Path) -> None:
    """In the order of the first side; files and lines may meet."""
    for side, names in (("a", "xy"), ("b", "yz")):
        (tmp_path / side).mkdir()
        jsonl(tmp_path / side / "s.jsonl", *({"id": name, "body": ""} for name in names))
    sides = Recordings(tmp_path / "a"), Recordings(tmp_path / "b" / "s.jsonl")
    assert list(pairs_of(*sides)) == [("x", None), ("y", "y"), (None, "z")]


def test_two_single_files_are_a_pair_whatever_they_are_called(tmp_path: Path) -> None:
    """Old and new, before and after."""
    for name in ("old.sse", "new.txt"):
        (tmp_path / name).write_bytes(b"")
    sides = Recordings(tmp_path / "old.sse"), Recordings(tmp_path / "new.txt")
    assert list(pairs_of(*sides)) == [("old.sse", "new.txt")]


def test_one_stream_and_many_are_no_pair(tmp_path: Path) -> None:
    """Which of them would it be?"""
    (tmp_path / "a.sse").write_bytes(b"")
    one, many = Recordings(tmp_path / "a.sse"), Recordings(tmp_path)
    for sides in ((one, many), (many, one)):
        with pytest.raises(CapturesUnreadable, match="may hold several"):
            list(pairs_of(*sides))
