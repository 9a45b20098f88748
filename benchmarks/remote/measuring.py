"""Measuring a router in front of a service: throughput, the first frame, many open streams."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from benchmarks.load import Effort, client, keep_asking
from benchmarks.remote.proxies import nginx, routing
from benchmarks.remote.rows import Many, first_rows, many_rows, throughput_rows
from benchmarks.remote.streams import first_frames, open_streams
from benchmarks.rows import SEED, BenchRow
from benchmarks.servers import BenchServer, serving
from benchmarks.shadow import ledger

UPSTREAM = "benchmarks.remote.upstream"
IN_FLIGHT = 20
OPEN = 200
MANY = 2_000
EVENTS = 60
SETTLE_S = 3.0


class _Captures(msgspec.Struct, frozen=True):
    written: int


class _Ready(msgspec.Struct, frozen=True):
    captures: _Captures


async def measure(effort: Effort) -> list[BenchRow]:
    """Measure everything, one after the other."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        direct = stack.enter_context(serving("direct", UPSTREAM, log=folder / "upstream"))
        beside = stack.enter_context(nginx(folder, direct.url))
        router = stack.enter_context(routing("router", folder, direct.url, shadow=False))
        shadowed = stack.enter_context(routing("shadowed", folder, direct.url, shadow=True))
        servers = (*(beside or ()), router, shadowed)
        rates = await _rates(servers, effort)
        compared = await _compared(shadowed)
        effort.advance("remote", 0.5)
        firsts = await first_frames(direct, router, OPEN, effort.requests // 2)
        effort.advance("remote", 0.7)
        many = await _many(direct, stack.enter_context(_fresh(folder, direct)))
    effort.advance("remote", 1.0)
    return [
        *throughput_rows(rates, effort.requests, compared),
        *first_rows(firsts, OPEN),
        *many_rows(many),
    ]


def _fresh(folder: Path, direct: BenchServer) -> AbstractContextManager[BenchServer]:
    """Start a router whose memory has held nothing yet."""
    return routing("many", folder, direct.url, shadow=False)


async def _rates(servers: Sequence[BenchServer], effort: Effort) -> dict[str, list[float]]:
    """Give the requests a second of each server, round by round, the order drawn."""
    chance, rates = random.Random(SEED), dict[str, list[float]]()
    async with client(IN_FLIGHT) as session:
        for server in servers:
            await keep_asking(session, server, effort.requests, IN_FLIGHT)
        for _ in range(effort.rounds):
            for server in chance.sample(servers, len(servers)):
                began = time.perf_counter()
                await keep_asking(session, server, effort.requests, IN_FLIGHT)
                rate = effort.requests / (time.perf_counter() - began)
                rates.setdefault(server.name, []).append(rate)
                await asyncio.sleep(SETTLE_S / 10)
    return rates


async def _compared(shadowed: BenchServer) -> float:
    """Give the share of requests whose shadow was compared, in per cent, once all are settled."""
    async with client(1) as session:
        books = await ledger(session, shadowed)
        while books.open:
            await asyncio.sleep(SETTLE_S / 10)
            books = await ledger(session, shadowed)
    return 100 * books.count("compared") / books.total


async def _many(direct: BenchServer, router: BenchServer) -> Many:
    before = await open_streams(direct, MANY, EVENTS)
    through = await open_streams(router, MANY, EVENTS)
    await asyncio.sleep(SETTLE_S)
    async with client(1) as session, session.get(f"{router.url}/readyz") as response:
        captures = msgspec.json.decode(await response.read(), type=_Ready).captures
    return Many(MANY, EVENTS, before, through, _peak(router), captures.written)


def _peak(server: BenchServer) -> float:
    """Give the most memory a server has held, in MB."""
    status = Path(f"/proc/{server.pid}/status").read_text("ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1_024
