"""The bench of workers side by side: it runs, and its rows are whole; no figure is asserted."""

from __future__ import annotations

import pytest

from benchmarks.parts.side_by_side import measure


@pytest.mark.slow
@pytest.mark.sockets
async def test_the_bench_gives_whole_rows() -> None:
    """Two and eight workers on each stack; it fails where frames are out of order."""
    assert [row.name for row in await measure(1)] == [
        f"ops.{stack}.{count}_workers_over_slowest"
        for count in (2, 8)
        for stack in ("legacy", "graph")
    ]
