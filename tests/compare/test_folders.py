"""Folders nobody may look into are no empty ones: neither to who compares nor to who forgets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import fsspec
import pytest

from compare.damage import CapturesUnreadable
from compare.folders import files_below
from compare.segments import find_segments
from cutover.forgetting import Sought, forget_captures
from effects.whose import Whose

ANN = Sought(Whose("user", "ann"), b"key")


@pytest.fixture
def captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give captures of which one folder is closed; root, who may run the tests, sees all others."""
    for flow in ("flow=chat", "flow=session"):
        (tmp_path / flow).mkdir()
        (tmp_path / flow / "s.jsonl").touch()
    scandir = os.scandir

    def closed(path: Any = ".") -> Any:  # noqa: ANN401 - as the original
        if "session" in os.fspath(path):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    return tmp_path


def test_who_compares_is_refused(captures: Path) -> None:
    """The others would be called equal, and nobody would know of what was not looked at."""
    with pytest.raises(CapturesUnreadable, match=r"Permission denied.*session"):
        find_segments(str(captures))
    assert len(find_segments(str(captures / "flow=chat"))) == 1


def test_who_forgets_is_refused(captures: Path) -> None:
    """That there was nothing of somebody would not be true."""
    with pytest.raises(PermissionError):
        forget_captures(str(captures), ANN)


def test_what_is_not_there_is_empty(tmp_path: Path) -> None:
    """Nothing was captured yet; on a disk and elsewhere."""
    for place in (str(tmp_path / "absent"), "memory://absent"):
        assert not files_below(*fsspec.core.url_to_fs(place))
        assert not forget_captures(place, ANN).exchanges
