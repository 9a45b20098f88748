"""What is below a folder: all of it or none, and files alone, however something is called."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from compare.input.damage import CapturesUnreadable
from compare.input.files import files_below
from compare.input.segments import find_segments
from contract.stores import DataSubject
from cutover.erasure import SubjectMatcher, erase_captures
from effects.places import Place
from tests.support.forked import forked_module

NOT_FILES = ("device.jsonl", "pipe.jsonl.zst")
ANN = SubjectMatcher(DataSubject("user", "ann"), b"key")


@pytest.fixture
def captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give captures of which one folder is closed; root, who may run the tests, sees all others."""
    for flow in ("flow=chat", "flow=session"):
        (tmp_path / flow).mkdir()
        (tmp_path / flow / "s.jsonl").touch()
    scandir = os.scandir

    def closed(path: Any = ".") -> Any:
        if "session" in os.fspath(path):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    return tmp_path


def test_who_compares_is_refused(captures: Path) -> None:
    """Otherwise the rest would be called equal, with files left out silently."""
    with pytest.raises(CapturesUnreadable, match=r"Permission denied.*session"):
        find_segments(str(captures))
    assert len(find_segments(str(captures / "flow=chat"))) == 1


def test_who_forgets_is_refused(captures: Path) -> None:
    """Otherwise `forget` would report that there was nothing."""
    with pytest.raises(PermissionError):
        erase_captures(str(captures), ANN)


def test_what_is_not_there_is_empty(tmp_path: Path) -> None:
    """Nothing was captured yet; on a disk and elsewhere."""
    for place in (str(tmp_path / "absent"), "memory://absent"):
        assert not files_below(Place(place))
        assert not erase_captures(place, ANN).exchanges


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Return a folder with a device and an unwritten pipe, named like captures."""
    device, pipe = (tmp_path / name for name in NOT_FILES)
    device.symlink_to("/dev/zero")
    os.mkfifo(pipe)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["diff", "-o", "out"], 2, "2 damaged files, batches or lines passed over"),
        (["replay", "-o", "out", "--stack", "legacy"], 2, "2 damaged: unreadable"),
        (["noise"], 2, "2 left out: file unreadable"),
    ],
)
def test_pipes_and_devices_are_counted_and_passed_over(
    odd: Path, tmp_path_factory: pytest.TempPathFactory, words: list[str], status: int, said: str
) -> None:
    """By every command that reads captures: the one does not begin, the other does not end."""
    here, log = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("log") / "log"
    command = (words[0], str(odd), *words[1:])
    with forked_module("cutover", *command, cwd=here, log=log, COLUMNS="200") as done:
        shown = done.stdout.read()
        assert (done.wait(), log.read_text("utf-8")) == (status, "")
    assert said in " ".join(shown.split())


def test_who_forgets_passes_them_over(tmp_path: Path) -> None:
    """They hold no data of users."""
    (tmp_path / "device.jsonl.zst").symlink_to("/dev/full")
    assert not erase_captures(str(tmp_path), ANN).exchanges
