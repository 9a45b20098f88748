"""The router in front of remote stacks: throughput beside nginx, first frames, open streams."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec

from benchmarks.harness import BenchServer, Effort, client, keep_asking, serving
from benchmarks.remote.proxies import nginx, routing
from benchmarks.remote.stream_reader import Reader, connect, request
from benchmarks.rows import SEED, BenchRow, at_least, at_most, bootstrap, ratio_of_medians, reported
from benchmarks.shadows.alongside import ledger
from evidence.intervals import percentile

PASSED = 0.55
MIRRORED = 0.50
FIRST_P50_MS = 1.0
FIRST_P95_MS = 3.0
ADDED_P95_MS = 10.0
MOST_MB = 400.0
_RATIOS = {
    "remote.pass_over_nginx": ("router", "nginx", PASSED, "captures on, over proxy_buffering off"),
    "remote.shadowed_over_mirror": ("shadowed", "mirror", MIRRORED, "captures on, over mirror"),
}


@dataclass(frozen=True, slots=True)
class Many:
    """Many open streams: event delays in milliseconds, peak memory, exchanges written."""

    streams: int
    events: int
    direct: Sequence[float]
    through: Sequence[float]
    peak_mb: float
    written: int


def throughput_rows(
    rates: Mapping[str, Sequence[float]], requests: int, compared: float
) -> list[BenchRow]:
    """Return the requests a second of each, and the ratios to nginx where that is installed.

    `compared` is the share of the mirrored requests whose shadow ran to its end, in per cent.
    """
    how = f"64-event streams, one worker each, {requests} requests a round, order drawn"
    rows = [
        reported(f"remote.{name}.requests", median(values), "1/s", f"median round; {how}")
        for name, values in rates.items()
    ]
    rows.append(reported("remote.shadowed.compared", compared, "%", "ledger of /readyz"))
    for name, (ours, theirs, target, what) in _RATIOS.items():
        if theirs not in rates:
            continue
        pairs = list(zip(rates[ours], rates[theirs], strict=True))
        ratio = bootstrap(pairs, ratio_of_medians)
        said = f"{what}; median of the rounds' ratios, 95 % [{ratio.low:.2f}, {ratio.high:.2f}]"
        rows.append(at_least(name, ratio.value, "×", target, f"{said}; {how}"))
    return rows


def first_rows(firsts: Sequence[tuple[float, float]], streams: int) -> list[BenchRow]:
    """Compare what the router adds to the first frame with its targets."""
    added = sorted(through - direct for direct, through in firsts)
    how = f"{len(added)} pairs of requests, {streams} streams of 10 events a second open"
    return [
        at_most("remote.added_first.p50", percentile(added, 0.5), "ms", FIRST_P50_MS, how),
        at_most("remote.added_first.p95", percentile(added, 0.95), "ms", FIRST_P95_MS, how),
    ]


def many_rows(many: Many) -> list[BenchRow]:
    """Compare what many open streams add to each event, and their memory, with the targets."""
    direct, through = (percentile(sorted(one), 0.95) for one in (many.direct, many.through))
    due = many.streams * (many.events - 4)
    lost = due - len(many.through) + many.streams - many.written
    how = (
        f"{many.streams} streams of 10 events a second, {len(many.through)} events; P95 of the "
        f"delay from sending to reading {through:.2f} ms, without a router {direct:.2f} ms"
    )
    return [
        at_most("remote.many.added_p95", through - direct, "ms", ADDED_P95_MS, how),
        at_most("remote.many.memory", many.peak_mb, "MB", MOST_MB, f"peak; {how}"),
        at_most("remote.many.lost", lost, "events, exchanges", 0, f"read and written; {how}"),
    ]


RATE = 10
RAMP_S = 2.0
_ENDLESS = 1_000_000


async def first_frames(
    direct: BenchServer, router: BenchServer, streams: int, pairs: int
) -> list[tuple[float, float]]:
    """Request the service and the router in turn while so many streams are open at the router.

    Returns the milliseconds to the first frame: direct, through the router.
    """
    found: list[tuple[float, float]] = []
    async with held_streams(router, streams):
        ways = [await connect(direct.url), await connect(router.url)]
        for number in range(pairs):
            # The order alternates: the second finds caches warm.
            order = (0, 1) if number % 2 else (1, 0)
            seconds = [0.0, 0.0]
            for way in order:
                url = (direct, router)[way].url
                seconds[way] = (await ways[way].ask(request(url, "", number))).first
            found.append((seconds[0] * 1_000, seconds[1] * 1_000))
            await asyncio.sleep(0.01)
        for one in ways:
            one.close()
    return found


@asynccontextmanager
async def held_streams(server: BenchServer, streams: int) -> AsyncIterator[None]:
    """Hold streams open that send ten events a second."""
    readers = [await connect(server.url) for _ in range(streams)]
    pending = []
    for number, reader in enumerate(readers):
        query = f"rate={RATE}&events={_ENDLESS}"
        pending.append(reader.ask(request(server.url, query, _ENDLESS + number)))
        await asyncio.sleep(RAMP_S / streams)
    try:
        yield
    finally:
        for reader in readers:
            reader.close()
        await asyncio.gather(*pending, return_exceptions=True)


async def open_streams(
    server: BenchServer, streams: int, events: int, ramp: float = RAMP_S
) -> list[float]:
    """Read so many streams side by side; return the delay of each event in milliseconds.

    They begin one after the other within `ramp` seconds.
    """
    readers = [await connect(server.url) for _ in range(streams)]
    query = f"rate={RATE}&events={events}"
    tasks = [
        asyncio.create_task(
            _read(reader, request(server.url, query, number), ramp * number / streams)
        )
        for number, reader in enumerate(readers)
    ]
    try:
        found = await asyncio.gather(*tasks)
    finally:
        for reader in readers:
            reader.close()
    return [delay for delays in found for delay in delays]


async def _read(reader: Reader, data: bytes, wait: float) -> list[float]:
    await asyncio.sleep(wait)
    reader.stamped = True
    return (await reader.ask(data)).delays


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
        effort.advance(0.5)
        firsts = await first_frames(direct, router, OPEN, effort.requests // 2)
        effort.advance(0.7)
        # A router whose memory has held nothing yet.
        fresh = stack.enter_context(routing("many", folder, direct.url, shadow=False))
        many = await _many(direct, fresh)
    effort.advance(1.0)
    return [
        *throughput_rows(rates, effort.requests, compared),
        *first_rows(firsts, OPEN),
        *many_rows(many),
    ]


async def _rates(servers: Sequence[BenchServer], effort: Effort) -> dict[str, list[float]]:
    """Return the requests a second of each server, round by round, in drawn order."""
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
    """Return the percentage of requests whose shadow was compared, once all are settled."""
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
    """Return the peak memory of a server, in MB."""
    status = Path(f"/proc/{server.pid}/status").read_text("ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1_024
