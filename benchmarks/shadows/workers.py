"""What shadows on workers cost the served requests of their router, and all processes together."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import aiohttp

from benchmarks.capacity import IN_FLIGHT, cost_of
from benchmarks.first_frame import slow_provider
from benchmarks.harness import (
    BenchServer,
    Effort,
    Shares,
    client,
    keep_asking,
    load_in_turn,
    rise_row,
    router_server,
    serving,
)
from benchmarks.rows import BenchRow, at_least, at_most, reported
from benchmarks.shadows.alongside import ledger
from contract.errors import CutoverError
from loadtests.processes import own_port
from loadtests.simulator import spawn

RISE_MS = 1.0
CPU_RATIO = 1.1
TWO_OVER_ONE = 1.7
BACKLOG = 1_000
"""Exchanges that may wait: more than gather before two workers, fewer than in a minute of none."""
_LOOK_SECONDS = 0.02


class NoRedis(CutoverError):
    """The program is not installed."""

    def __init__(self) -> None:
        super().__init__("this bench starts a Redis of its own: 'redis-server' is not installed")


async def measure(effort: Effort) -> list[BenchRow]:
    """Measure one router without shadows, one that runs them, and one that hands them over."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        provider = stack.enter_context(spawn(slow_provider()))
        broker = stack.enter_context(redis_server(folder))
        handed = Shares(shadow=100, broker=broker.url, queue=BACKLOG)
        bare, inside, router = (
            stack.enter_context(router_server(name, folder, provider, shares))
            for name, shares in (
                ("bare", Shares()),
                ("inside", Shares(shadow=100)),
                ("handing", handed),
            )
        )
        config = folder / "handing" / "cutover.toml"
        async with client(IN_FLIGHT) as session:
            with worker_process("first", config) as first:
                rows = await _costs(session, (bare, inside, router), (first, broker), effort)
                rate = 1_000 / (3 * rows[0].value)
                servers, how = (bare, router), f"everything shadowed by a worker, {rate:.0f}/s"
                pairs = await load_in_turn(servers, rate, effort)
                rows.append(rise_row("shadow_workers.p95_ttft_rise", pairs, "ttft", RISE_MS, how))
                os.kill(first.pid, signal.SIGSTOP)
                pairs = await load_in_turn(servers, rate, effort)
                os.kill(first.pid, signal.SIGCONT)
                how = f"the worker stands still, {rate:.0f}/s"
                rows.append(
                    rise_row("shadow_workers.p95_ttft_rise_stopped", pairs, "ttft", RISE_MS, how)
                )
                await _drained(session, router)
                rows += await _in_books(session, router)
                rows.append(await _two_over_one(session, router, first, config, effort))
    return rows


async def _costs(
    session: aiohttp.ClientSession,
    servers: tuple[BenchServer, BenchServer, BenchServer],
    beside: tuple[BenchServer, BenchServer],
    effort: Effort,
) -> list[BenchRow]:
    """Return what an exchange costs without shadows, and both ways of running them.

    The worker and the broker are those `beside` the last router.
    """
    bare, inside, router = servers
    for server in servers:
        await keep_asking(session, server, effort.requests // 2, IN_FLIGHT)
    await _drained(session, router)
    found: list[tuple[float, ...]] = []
    for _ in range(effort.rounds):
        costs = [await cost_of(session, server, effort.requests) for server in (bare, inside)]
        before = [one.cpu() for one in beside]
        costs.append(await cost_of(session, router, effort.requests))
        await _drained(session, router)
        used = (one.cpu() - then for one, then in zip(beside, before, strict=True))
        found.append((*costs, *(1_000 * seconds / effort.requests for seconds in used)))
    without, within, handing, working, broker = (
        median(costs) for costs in zip(*found, strict=True)
    )
    ratio = median((row[2] + row[3]) / row[1] for row in found)
    how = f"processor milliseconds an exchange, median of {effort.rounds} rounds"
    return [
        reported("shadow_workers.cpu_without_shadows", without, "ms", how),
        reported("shadow_workers.cpu_in_process", within, "ms", how),
        reported("shadow_workers.cpu_of_the_router", handing, "ms", how),
        reported("shadow_workers.cpu_of_the_worker", working, "ms", how),
        reported("shadow_workers.cpu_of_the_broker", broker, "ms", how),
        at_most("shadow_workers.cpu_over_in_process", ratio, "×", CPU_RATIO, how),
    ]


async def _in_books(session: aiohttp.ClientSession, router: BenchServer) -> list[BenchRow]:
    """Return whether every exchange ended, and as what."""
    found = await ledger(session, router)
    states = ", ".join(f"{line.count} {line.state}" for line in found.lines)
    return [
        at_most("shadow_workers.not_settled", found.open, "exchanges", 0, f"of /readyz: {states}")
    ]


async def _two_over_one(
    session: aiohttp.ClientSession,
    router: BenchServer,
    first: BenchServer,
    config: Path,
    effort: Effort,
) -> BenchRow:
    """Let one worker, then two, take what has gathered while they stood still."""
    rates: list[list[float]] = [[], []]
    count = 2 * effort.requests
    with worker_process("second", config) as second:
        for _ in range(effort.rounds):
            for rate, workers in zip(rates, ([first], [first, second]), strict=True):
                for one in (first, second):
                    os.kill(one.pid, signal.SIGSTOP)
                await keep_asking(session, router, count, IN_FLIGHT)
                began = time.monotonic()
                for one in workers:
                    os.kill(one.pid, signal.SIGCONT)
                await _drained(session, router)
                rate.append(count / (time.monotonic() - began))
        os.kill(second.pid, signal.SIGCONT)
    ratio = median(two / one for one, two in zip(*rates, strict=True))
    cores = len(os.sched_getaffinity(0))
    how = (
        f"{count} exchanges that had gathered, one worker {median(rates[0]):.0f}/s, two "
        f"{median(rates[1]):.0f}/s, {cores} cores for these, Redis, router and bench"
    )
    return at_least("shadow_workers.two_over_one", ratio, "×", TWO_OVER_ONE, how)


async def _drained(session: aiohttp.ClientSession, router: BenchServer) -> None:
    """Wait until every exchange is settled."""
    while (await ledger(session, router)).open:  # noqa: ASYNC110 - of another process
        await asyncio.sleep(_LOOK_SECONDS)


@contextmanager
def worker_process(name: str, config: Path) -> Iterator[BenchServer]:
    """Start a worker of a router's configuration."""
    options = ("shadow-worker", "--config", str(config))
    with serving(name, "cutover", *options, log=config.parent / f"{name}.log") as worker:
        yield worker


@contextmanager
def redis_server(folder: Path) -> Iterator[BenchServer]:
    """Start a Redis that keeps nothing on disk."""
    program = shutil.which("redis-server")
    if program is None:
        raise NoRedis
    with own_port() as port:
        options = ("--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(folder))
        with subprocess.Popen([program, *options], stdout=subprocess.PIPE) as process:  # noqa: S603
            try:
                for line in _lines(process):
                    if b"ready to accept connections" in line.lower():
                        break
                yield BenchServer("broker", f"redis://127.0.0.1:{port}/0", process.pid)
            finally:
                process.terminate()


def _lines(process: subprocess.Popen[bytes]) -> Sequence[bytes] | Iterator[bytes]:
    return process.stdout or ()
