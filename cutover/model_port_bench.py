"""Measures the real model port for the bench, which may not open adapters itself.

    python -m cutover.model_port_bench REQUESTS ROUNDS

Rows go to standard output as JSON.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from effects.model import ModelEntry, ModelRegistry, Provider, RescuingModel
from loadtests.bench.model_port import measure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from contract.ports import Model


@asynccontextmanager
async def open_model(base_url: str, model: str) -> AsyncIterator[Model]:
    """Open the port on one provider; the model is known as `bench`."""
    registry = ModelRegistry([ModelEntry("bench", Provider("simulated", base_url), model)])
    try:
        yield RescuingModel(registry)
    finally:
        await registry.aclose()


def main() -> None:
    """Measure and print."""
    requests, rounds = map(int, sys.argv[1:])
    rows = asyncio.run(measure(open_model, requests=requests, rounds=max(rounds, 1)))
    sys.stdout.buffer.write(msgspec.json.encode(rows))


if __name__ == "__main__":
    main()
