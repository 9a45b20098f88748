"""Raw rows survive the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.rows import (
    CpuTimes,
    GeneratorMeter,
    RowsUnreadable,
    RowWriter,
    parse_times,
    read_loads,
    read_rows,
    write_load,
)
from tests.loadtests.streams import row


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    """Below a folder that was not there, over two writers."""
    path = tmp_path / "new" / "rows.jsonl"
    rows = [row(message_id=str(number), labels={"served": "graph"}) for number in range(120)]
    for part in (rows[:60], rows[60:]):
        with RowWriter(path) as writer:
            for one in part:
                writer.write(one)
            writer.close()
    assert list(read_rows(path)) == rows


def test_rows_are_on_disk_before_the_end(tmp_path: Path) -> None:
    """A generator that dies loses fifty rows at most."""
    with RowWriter(tmp_path / "rows.jsonl") as writer:
        for _ in range(60):
            writer.write(row())
        assert len(list(read_rows(tmp_path / "rows.jsonl"))) == 50


@pytest.mark.parametrize("line", [b'{"run":0\n', b'{"stack":"\xff"}\n'])
def test_a_torn_row_is_reported(tmp_path: Path, line: bytes) -> None:
    """With file and line."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(line)
    with pytest.raises(RowsUnreadable, match=r"line 1 of .*rows\.jsonl"):
        list(read_rows(path))


def test_generators_account_for_themselves(tmp_path: Path) -> None:
    """One file for each, none when there was none."""
    assert read_loads(tmp_path) == []
    write_load(GeneratorMeter().load(), tmp_path, "a")
    write_load(GeneratorMeter().load(), tmp_path, "b")
    assert len(read_loads(tmp_path)) == 2


def test_the_machines_account_is_read_as_proc_writes_it() -> None:
    """Idle and waiting are idle, stolen is busy, guests are not counted twice."""
    times = parse_times("cpu  10 20 30 400 100 6 7 8 99 99")
    assert times == CpuTimes(busy=81, total=581)
    assert times.share_since(CpuTimes(0, 81)) == pytest.approx(81 / 500)
    assert times.share_since(times) is None
