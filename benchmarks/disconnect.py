"""How soon a provider call ends after its client disconnects: both stacks, on real sockets.

The client stamps the moment it drops its connection, the simulated provider the moment it stops
answering; both by this machine's one monotonic clock, in processes of their own.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import msgspec

from benchmarks.harness import PATH, BenchServer, Effort, Shares, configuration, serving
from benchmarks.rows import BenchRow, at_most, reported
from contract.errors import CutoverError
from evidence import percentile
from loadtests.simulator import Profile, Record, spawn

STACKS = {"legacy": 0.0, "graph": 100.0}
WORKERS = 4
LEAVES_A_ROUND = 20
TARGET_MS = 100.0
PATIENCE_S = 10.0
# Far longer than any client reads.
ENDLESS = Profile(rate=100, tokens=10_000, limit=10_000)


class NeverCancelled(CutoverError):
    """The provider still streams long after all clients have disconnected."""

    def __init__(self, stack: str, left: int) -> None:
        super().__init__(f"with {stack!r}, {left} calls still run after {PATIENCE_S} seconds")


class _Counts(msgspec.Struct):
    in_flight: int


class _Page(msgspec.Struct):
    records: list[Record]
    next: int


async def measure(effort: Effort) -> list[BenchRow]:
    """Disconnect in mid-stream, several at a time, and measure when the provider stops."""
    rows: list[BenchRow] = []
    for number, (stack, graph) in enumerate(STACKS.items()):
        waits = await _stack(stack, graph, effort.rounds * LEAVES_A_ROUND)
        rows += rows_of(stack, waits)
        effort.advance("disconnect", (number + 1) / len(STACKS))
    return rows


def rows_of(stack: str, waits: Sequence[float]) -> list[BenchRow]:
    """Put the milliseconds of one stack into rows."""
    ordered = sorted(waits)
    how = (
        f"milliseconds from the client's close to the provider's stop, {len(ordered)} clients "
        f"that left after the first text, {WORKERS} at a time; provider, router and client in "
        "processes of their own"
    )
    name = f"disconnect.{stack}"
    return [
        at_most(f"{name}.p95", percentile(ordered, 0.95), "ms", TARGET_MS, how),
        reported(f"{name}.p50", percentile(ordered, 0.5), "ms", how),
        reported(f"{name}.worst", ordered[-1], "ms", how),
    ]


async def _stack(stack: str, graph: float, leaves: int) -> list[float]:
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory()))
        provider = opened.enter_context(spawn(ENDLESS))
        config = folder / "cutover.toml"
        text = configuration(folder, provider, Shares(graph=graph)) + _models()
        config.write_text(text, encoding="utf-8")
        options = ("serve", "--config", str(config), "--port", "0")
        router = opened.enter_context(serving(stack, "cutover", *options, log=folder / "log"))
        async with aiohttp.ClientSession() as session:
            left = await _leave(session, router, leaves)
            await _quiet(session, provider, stack)
            return waited(left, await _records(session, provider))


def _models() -> str:
    """Configure a model per worker, which tells the provider's records apart."""
    return "".join(
        f'\n[models.{_model(worker)}]\nprovider = "simulated"\n' for worker in range(WORKERS)
    )


def _model(worker: int) -> str:
    return f"sim-worker-{worker}"


async def _leave(
    session: aiohttp.ClientSession, router: BenchServer, leaves: int
) -> dict[str, list[int]]:
    """Disconnect so often; return the moments by model, in order."""
    left: dict[str, list[int]] = defaultdict(list)

    async def worker(model: str) -> None:
        for number in range(leaves // WORKERS):
            body = {
                "message_id": f"{model}-{number}",
                "content": "Tell me a very long story.",
                "model_config": {"model_id": model},
            }
            async with session.post(router.url + PATH, json=body) as response:
                while b'"SEND"' not in await response.content.readline():
                    pass
                left[model].append(time.monotonic_ns())
                response.close()

    async with asyncio.TaskGroup() as workers:
        for number in range(WORKERS):
            workers.create_task(worker(_model(number)))
    return left


async def _quiet(session: aiohttp.ClientSession, provider: str, stack: str) -> None:
    """Wait until the provider has no open call; raises `NeverCancelled`."""
    until = time.monotonic() + PATIENCE_S
    while True:
        async with session.get(f"{provider}/sim/counts") as response:
            running = msgspec.json.decode(await response.read(), type=_Counts).in_flight
        if not running:
            return
        if time.monotonic() > until:
            raise NeverCancelled(stack, running)
        await asyncio.sleep(0.05)


async def _records(session: aiohttp.ClientSession, provider: str) -> list[Record]:
    records: list[Record] = []
    since = 0
    while True:
        async with session.get(f"{provider}/sim/requests?since={since}") as response:
            page = msgspec.json.decode(await response.read(), type=_Page)
        if not page.records:
            return records
        records += page.records
        since = page.next


def waited(left: Mapping[str, Sequence[int]], records: Sequence[Record]) -> list[float]:
    """Pair each disconnect with its model call; return the milliseconds between the two."""
    ended: dict[str, list[int]] = defaultdict(list)
    for record in records:
        ended[record.model].append(record.ended_ns)
    return [
        max(end - moment, 0) / 1_000_000
        for model, moments in left.items()
        for moment, end in zip(moments, ended[model], strict=True)
    ]
