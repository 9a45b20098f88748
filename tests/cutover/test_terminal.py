"""What commands show, and to whom."""

from __future__ import annotations

import pytest

from cutover.cli.terminal import UNFOLDED, tables


def test_a_table_in_a_file_is_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sees how wide a log of CI is; whoever says it is heeded."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert tables().width == UNFOLDED
    monkeypatch.setenv("COLUMNS", "90")
    assert tables().width == 90
