"""Tables on a terminal or in a file."""

from __future__ import annotations

import pytest

from cutover.cli.terminal import UNFOLDED, tables


def test_a_table_in_a_file_is_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The width of a log of CI is unknown, unless COLUMNS is set."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert tables().width == UNFOLDED
    monkeypatch.setenv("COLUMNS", "90")
    assert tables().width == 90
