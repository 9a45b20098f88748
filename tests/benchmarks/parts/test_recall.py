"""The bench of recall: it runs, and its rows are whole; no figure is asserted."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.parts.recall import measure


@pytest.mark.slow
@pytest.mark.sockets
async def test_the_bench_gives_whole_rows(tmp_path: Path, pgvector_dsn: str) -> None:
    """The mood, and both stores, each with what most recalls take and the first one."""
    rows = await measure(tmp_path, pgvector_dsn, 2, [20])
    assert [row.name for row in rows] == [
        "recall.mood_and_intent.p95",
        *(
            f"recall.{store}.20.{what}"
            for store in ("sqlite", "postgresql")
            for what in ("p50", "p95", "first")
        ),
    ]
    assert all(row.value > 0 and row.unit == "ms" for row in rows)
