"""Tables on a terminal or in a file, and files that are written whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutover.cli.terminal import UNFOLDED, tables
from cutover.files import write_whole


def test_a_table_in_a_file_is_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The width of a log of CI is unknown, unless COLUMNS is set."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert tables().width == UNFOLDED
    monkeypatch.setenv("COLUMNS", "90")
    assert tables().width == 90


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
