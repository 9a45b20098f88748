"""Rows as Parquet: every field a column; without pyarrow, the extra is named."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from contract.errors import MissingExtra
from loadtests.parquet import parquet_library, write_parquet
from loadtests.rows import LoadRow
from tests.loadtests.streams import row


def test_rows_come_back(tmp_path: Path) -> None:
    """Numbers, gaps and labels are what they were; what was never reached is nothing."""
    pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
    rows = [row(labels={"served": "graph"}), row(first_token=None, gaps=(), leaves=5)]
    write_parquet(rows, tmp_path / "rows.parquet")
    table = parquet_library().parquet.read_table(tmp_path / "rows.parquet")
    cells = [{**one, "labels": dict(one["labels"])} for one in table.to_pylist()]
    assert [msgspec.convert(one, LoadRow) for one in cells] == rows


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is sent: `cutover load` looks first."""
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtra, match=r"cutover\[parquet\]"):
        parquet_library()
