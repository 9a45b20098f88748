"""The bench of the model port: it runs, and its rows are whole; no figure is asserted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from benchmarks.model_port import measure
from contract.ports import Model
from effects.model import ModelEntry, ModelRegistry, Provider, RescuingModel


@asynccontextmanager
async def opened(base_url: str, model: str) -> AsyncIterator[Model]:
    """Open the adapter on one provider."""
    registry = ModelRegistry([ModelEntry("bench", Provider("bench", base_url), model)])
    try:
        yield RescuingModel(registry)
    finally:
        await registry.aclose()


@pytest.mark.slow
@pytest.mark.sockets
async def test_the_bench_gives_whole_rows() -> None:
    """Every row has a name, a positive value and says how it was measured."""
    rows = await measure(opened, requests=4, rounds=1)
    assert [row["name"] for row in rows] == [
        "model_port.cpu_per_request",
        "model_port.chunks_per_second",
        "model_port.share_of_sdk_cpu",
        "openai_sdk.cpu_per_request",
        "openai_sdk.chunks_per_second",
    ]
    for row in rows:
        assert list(row) == ["name", "value", "unit", "target", "ok", "how"]
        assert isinstance(row["value"], float)
        assert row["value"] > 0
        assert (row["target"] is None) == (row["ok"] is None)
