"""What a streamed model call costs its process: the model port and the bare SDK.

The simulated provider runs in a process of its own, so processor time is the client's alone. On a
busy machine absolute figures grow with the other load; the share of the SDK's does not.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
from openai import AsyncOpenAI, DefaultAioHttpClient

from benchmarks.rows import BenchRow, at_most, reported
from contract.model import ModelCall, SystemMessage, UserMessage
from contract.ports import Model
from effects.model import ModelEntry, ModelRegistry, Provider, RescuingModel
from loadtests.simulator import spawn

CHUNKS = 64
IN_FLIGHT = 20
WARM_UP = 20
REQUESTS = 400
ROUNDS = 3
TARGET_MS = 0.6
MODEL = f"sim-chat?tokens={CHUNKS}&split=1"
PROMPT = "Tell me how a river finds its way to the sea, in plain words. " * 4
SYSTEM = "You are a patient teacher."


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one request: processor milliseconds; of the run: chunks per second of wall time."""

    cpu_ms: float
    chunks_per_second: float


async def measure(*, requests: int = REQUESTS, rounds: int = ROUNDS) -> list[BenchRow]:
    """Measure the port and the SDK's typed stream in turn; the best of the rounds counts."""
    with spawn() as url:
        base_url = f"{url}/v1"
        async with open_model(base_url, MODEL) as model, _sdk(base_url) as client:
            port, sdk = [
                await _best(ask, requests, rounds)
                for ask in (lambda: _ask_port(model), lambda: _ask_sdk(client))
            ]
    return _rows(port, sdk)


def _rows(port: Cost, sdk: Cost) -> list[BenchRow]:
    how = f"{CHUNKS} chunks a stream, {IN_FLIGHT} in flight, provider in another process"
    return [
        at_most("model_port.cpu_per_request", port.cpu_ms, "ms", TARGET_MS, how),
        reported("model_port.chunks_per_second", port.chunks_per_second, "1/s", how),
        at_most("model_port.share_of_sdk_cpu", port.cpu_ms / sdk.cpu_ms, "ratio", 0.2, how),
        reported("openai_sdk.cpu_per_request", sdk.cpu_ms, "ms", f"stream=True, {how}"),
        reported(
            "openai_sdk.chunks_per_second", sdk.chunks_per_second, "1/s", f"stream=True, {how}"
        ),
    ]


async def _best(ask: Callable[[], Awaitable[int]], requests: int, rounds: int) -> Cost:
    await _rate(ask, min(WARM_UP, requests))
    costs = [await _rate(ask, requests) for _ in range(rounds)]
    return min(costs, key=lambda cost: cost.cpu_ms)


async def _rate(ask: Callable[[], Awaitable[int]], requests: int) -> Cost:
    left = iter(range(requests))
    chunks = 0

    async def worker() -> None:
        nonlocal chunks
        for _ in left:
            count = await ask()  # apart from the sum: other workers add to it meanwhile
            chunks += count

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Cost(1000 * cpu / requests, chunks / wall)


async def _ask_port(model: Model) -> int:
    call = ModelCall(
        model_id="bench",
        messages=(SystemMessage(SYSTEM), UserMessage(PROMPT)),
        temperature=0.7,
    )
    count = 0
    async for _ in model.stream("reply", call):
        count += 1
    return count


async def _ask_sdk(client: AsyncOpenAI) -> int:
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPT}],
        temperature=0.7,
        stream=True,
        stream_options={"include_usage": True},
    )
    count = 0
    async for _ in stream:
        count += 1
    return count


def _sdk(base_url: str) -> AsyncOpenAI:
    transport = DefaultAioHttpClient(trust_env=False)
    return AsyncOpenAI(api_key="none", base_url=base_url, max_retries=0, http_client=transport)


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
    rows = asyncio.run(measure(requests=requests, rounds=max(rounds, 1)))
    sys.stdout.buffer.write(msgspec.json.encode(rows))


if __name__ == "__main__":
    main()
