"""Files written whole, whatever happens meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from effects.files import whole_file, write_whole


def test_a_file_takes_its_place_at_once(tmp_path: Path) -> None:
    """A reader that holds the old one keeps it; the mode is as requested."""
    path = tmp_path / "report.json"
    path.write_bytes(b"old")
    with path.open("rb") as held:
        write_whole(path, b"new", 0o600)
        assert held.read() == b"old"
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)


def test_what_cannot_be_put_leaves_nothing_behind(tmp_path: Path) -> None:
    """A folder in its place stays, and no half file beside it."""
    (tmp_path / "report.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_whole(tmp_path / "report.json", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def break_off(path: Path) -> None:
    """Write half a file."""
    with whole_file(path) as file:
        file.write(b"ne")
        raise KeyError


def write_slower(path: Path) -> None:
    """Write an exclusive file, while another process writes it."""
    with whole_file(path, exclusive=True) as file:
        file.write(b"slower")
        write_whole(path, b"first", exclusive=True)


def test_a_file_that_is_not_finished_leaves_the_old_one(tmp_path: Path) -> None:
    """An error while it is written removes what was written."""
    path = tmp_path / "report.json"
    path.write_bytes(b"old")
    with pytest.raises(KeyError):
        break_off(path)
    assert [(it.name, it.read_bytes()) for it in tmp_path.iterdir()] == [("report.json", b"old")]


def test_an_exclusive_file_is_written_once(tmp_path: Path) -> None:
    """Also where another process writes it between the look and the end."""
    path = tmp_path / "key"
    with pytest.raises(FileExistsError):
        write_slower(path)
    with pytest.raises(FileExistsError):
        write_whole(path, b"third", exclusive=True)
    assert [(it.name, it.read_bytes()) for it in tmp_path.iterdir()] == [("key", b"first")]
