"""The bench of the model port: it runs, and its rows are whole; no figure is asserted."""

from __future__ import annotations

import pytest

from benchmarks.parts.model_port import measure


@pytest.mark.slow
@pytest.mark.sockets
async def test_the_bench_gives_whole_rows() -> None:
    """Every row has a name, a positive value and says how it was measured."""
    rows = await measure(requests=4, rounds=1)
    assert [row.name for row in rows] == [
        "model_port.cpu_per_request",
        "model_port.chunks_per_second",
        "model_port.share_of_sdk_cpu",
        "openai_sdk.cpu_per_request",
        "openai_sdk.chunks_per_second",
    ]
    for row in rows:
        assert row.value > 0
        assert row.how
        assert (row.target is None) == (row.ok is None)
