"""Streams that are held open: what they add to each event, and to others' first frame."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.remote.reader import Reader, connect, request
from benchmarks.servers import BenchServer

RATE = 10
RAMP_S = 2.0
_ENDLESS = 1_000_000


async def first_frames(
    direct: BenchServer, router: BenchServer, streams: int, pairs: int
) -> list[tuple[float, float]]:
    """Ask the service and the router in turn while so many streams are open at the router.

    Gives the milliseconds to the first frame: direct, through the router.
    """
    found: list[tuple[float, float]] = []
    async with _held(router, streams):
        ways = [await connect(direct.url), await connect(router.url)]
        for number in range(pairs):
            # Whoever goes first changes: the second finds caches warm.
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
async def _held(server: BenchServer, streams: int) -> AsyncIterator[None]:
    """Hold streams open that say ten events a second."""
    readers = [await connect(server.url) for _ in range(streams)]
    asked = []
    for number, reader in enumerate(readers):
        query = f"rate={RATE}&events={_ENDLESS}"
        asked.append(reader.ask(request(server.url, query, _ENDLESS + number)))
        await asyncio.sleep(RAMP_S / streams)
    try:
        yield
    finally:
        for reader in readers:
            reader.close()
        await asyncio.gather(*asked, return_exceptions=True)


async def open_streams(
    server: BenchServer, streams: int, events: int, ramp: float = RAMP_S
) -> list[float]:
    """Read so many streams side by side; gives the delay of each event in milliseconds.

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


async def _read(reader: Reader, asked: bytes, wait: float) -> list[float]:
    await asyncio.sleep(wait)
    reader.stamped = True
    return (await reader.ask(asked)).delays
