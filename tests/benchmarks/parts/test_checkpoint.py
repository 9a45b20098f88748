"""The bench of threads: it runs, and its rows are whole; no figure is asserted."""

from __future__ import annotations

import pytest

from benchmarks.parts.checkpoint import measure


@pytest.mark.slow
async def test_the_bench_gives_whole_rows() -> None:
    """Time and bytes for each kind of threads there is."""
    rows = await measure(2)
    names = [row.name for row in rows]
    assert names == [
        "checkpoint.memory.per_turn",
        "checkpoint.memory.bytes_per_session",
        "checkpoint.sqlite.per_turn",
        "checkpoint.sqlite.bytes_per_session",
        "checkpoint.postgresql",
    ]
    sizes = [row for row in rows if row.unit == "bytes"]
    assert all(row.ok and row.value > 0 for row in sizes)
    assert "CUTOVER_BENCH_POSTGRES" in rows[-1].how
