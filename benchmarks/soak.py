"""A soak: an hour of mixed load on one router; whether memory levels off and descriptors stay flat.

Every request is shadowed, half of them are served by the graph, some clients leave in
mid-stream, some rate what they got. What a process holds is read from /proc every few seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import aiohttp
import msgspec
from scipy.stats import theilslopes

from benchmarks.harness import (
    CHATS,
    COMPANIONS,
    PATH,
    QUICK,
    SESSIONS,
    BenchServer,
    Effort,
    FlowLoad,
    LoadTrace,
    Shares,
    bodies,
    load,
    router_server,
)
from benchmarks.rows import SEED, BenchRow, at_most, reported
from loadtests.simulator import Profile, spawn

SECONDS: Final = 3_600.0
QUICK_SECONDS: Final = 60.0
ROUND_SECONDS: Final = 30.0
EVERY: Final = 5.0
"""Seconds between two readings."""
# Pins are bounded, at 20 MiB, but at this rate only after five hours. They end in the first half,
# so that what grows in the second is not bounded by anything.
PIN_SECONDS: Final = 600.0
RATES: Final = ((CHATS, 6.0), (SESSIONS, 2.0), (COMPANIONS, 2.0))
"""Requests a second by flow: about a third of one core, so that no queue hides anything."""
LEAVES_A_SECOND: Final = 0.5
RATINGS_A_SECOND: Final = 0.5
# Three times the resolution an hour of readings has on a quiet machine.
MOST_MIB_A_MINUTE: Final = 0.05
# A leak of one in a thousand requests is four times that.
MOST_DESCRIPTORS_A_THOUSAND: Final = 0.25
_MIB: Final = 1 << 20
_KIB: Final = 1 << 10
_MINUTE: Final = 60.0
_THOUSAND: Final = 1_000


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """What a process held `at` so many seconds after the load began: bytes, open descriptors."""

    at: float
    memory: int
    descriptors: int


async def measure(effort: Effort) -> list[BenchRow]:
    """Load a router for an hour, a minute where the effort is quick."""
    seconds = SECONDS if effort.rounds > QUICK.rounds else QUICK_SECONDS
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        provider = stack.enter_context(spawn(Profile(rate=200)))
        shares = Shares(graph=50, shadow=100, pin_seconds=PIN_SECONDS)
        server = stack.enter_context(router_server("soak", folder, provider, shares))
        readings: list[ProcessReading] = []
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(_watch(server.pid, readings))
            others = [
                tasks.create_task(_leave(session, server)),
                tasks.create_task(_rate(session, server)),
            ]
            requests = 0
            for number in range(rounds := round(seconds / ROUND_SECONDS)):
                requests += await _round(server, number)
                effort.advance((number + 1) / rounds)
            for task in (watch, *others):
                task.cancel()
    return rows_of(readings, requests)


async def _round(server: BenchServer, number: int) -> int:
    """Load all flows at once; return how many requests were answered, all of them whole."""

    async def one(flow: FlowLoad, rate: float) -> int:
        return len(await load(server, LoadTrace(rate, ROUND_SECONDS, SEED + number), flow))

    return sum(await asyncio.gather(*(one(flow, rate) for flow, rate in RATES)))


async def _leave(session: aiohttp.ClientSession, server: BenchServer) -> None:
    """Be clients that disconnect after the first piece of their answer."""
    for body in bodies("leaves"):
        async with session.post(server.url + PATH, json=body) as response:
            await response.content.readany()
            response.close()
        await asyncio.sleep(1 / LEAVES_A_SECOND)


async def _rate(session: aiohttp.ClientSession, server: BenchServer) -> None:
    """Be clients that say what they think of their answer."""
    for body in bodies("rated"):
        async with session.post(server.url + PATH, json=body) as response:
            await response.read()
        rating = {"exchange_id": response.headers["x-cutover-exchange"], "score": 1}
        async with session.post(f"{server.url}/feedback", json=rating) as response:
            await response.read()
        await asyncio.sleep(1 / RATINGS_A_SECOND)


async def _watch(pid: int, readings: list[ProcessReading]) -> None:
    now = asyncio.get_running_loop().time
    began = now()
    while True:
        readings.append(read_process(pid, now() - began))
        await asyncio.sleep(EVERY)


def read_process(pid: int, at: float) -> ProcessReading:
    """Read the resident memory and the open descriptors of a process."""
    process = Path("/proc") / str(pid)
    status = (process / "status").read_text("ascii", "replace").splitlines()
    resident = next(line for line in status if line.startswith("VmRSS:"))
    return ProcessReading(
        at, int(resident.split()[1]) * _KIB, sum(1 for _ in (process / "fd").iterdir())
    )


def rows_of(readings: Sequence[ProcessReading], requests: int) -> list[BenchRow]:
    """Judge the second half of the readings: the first is warming up."""
    half = list(readings[len(readings) // 2 :])
    how = (
        f"{requests} requests of three flows in {readings[-1].at:.0f} s, all shadowed, none "
        f"incomplete; the second half of {len(readings)} readings"
    )
    memory = [reading.memory / _MIB for reading in half]
    minutes = [reading.at / _MINUTE for reading in half]
    descriptors = [reading.descriptors for reading in half]
    thousands = [reading.at / readings[-1].at * requests / _THOUSAND for reading in half]
    return [
        _growth("soak.memory_growth", memory, minutes, "MiB/min", MOST_MIB_A_MINUTE, how),
        reported("soak.memory", memory[-1], "MiB", f"resident at the end; {how}"),
        reported("soak.memory_start", readings[0].memory / _MIB, "MiB", "resident when it began"),
        _growth(
            "soak.descriptor_growth",
            descriptors,
            thousands,
            "descriptors/1000 requests",
            MOST_DESCRIPTORS_A_THOUSAND,
            how,
        ),
        reported(
            "soak.descriptors",
            median(descriptors),
            "descriptors",
            f"median, those of open streams among them; {min(descriptors)} to {max(descriptors)}; "
            + how,
        ),
    ]


def _growth(
    name: str,
    held: Sequence[float],
    since: Sequence[float],
    unit: str,
    target: float,
    how: str,
) -> BenchRow:
    """Compare the slope of what a process held with its target.

    Open streams come and go: they widen the interval and do not turn the slope. Where the interval
    holds the target there is no verdict, which is not a pass.
    """
    slope, _, low, high = map(float, theilslopes(held, since))
    row = at_most(
        name, slope, unit, target, f"Theil-Sen slope, 95 % [{low:.3f}, {high:.3f}]; {how}"
    )
    if low <= target < high:
        row = msgspec.structs.replace(row, ok=None, how=f"cannot tell, too short; {row.how}")
    return row
