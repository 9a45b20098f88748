"""The bench of graphs: it runs, and its rows are whole; no figure is asserted."""

from __future__ import annotations

import pytest

from benchmarks.parts.graphs import BUILDERS, measure

SWITCH = ("engine", "node_switch")


@pytest.mark.slow
async def test_the_bench_gives_whole_rows() -> None:
    """Every graph is compiled; three flows' turns count their nodes."""
    rows = await measure(2)
    switched = [f"{flow}.{figure}" for flow in ("session", "pipeline", "ops") for figure in SWITCH]
    assert [row.name for row in rows] == [
        *(f"{name}.graph_compile" for name in BUILDERS),
        *switched,
    ]
    nodes = [row.how.split(";")[1].split()[0] for row in rows if row.name.endswith("node_switch")]
    assert nodes[:2] == ["3", "7"]
    assert int(nodes[2]) > len({"preprocess", "reason", "safety", "execute", "check"})
