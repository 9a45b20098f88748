"""What the flows beside chat cost on either stack, and how long a user waits for a whole reply."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import aiohttp

from benchmarks.capacity import CHUNKS, SETTLE_S, quiet
from benchmarks.harness import (
    INSTRUCTIONS,
    PIPELINES,
    BenchServer,
    Effort,
    FlowLoad,
    LoadTrace,
    Shares,
    answered,
    load,
    moments,
    router_server,
    unbroken,
)
from benchmarks.rows import SEED, BenchRow, at_most, bootstrap, ratio_of_medians, reported
from contract.flows.ops import OPS
from loadtests.arrivals import Constant
from loadtests.simulator import Profile, spawn

FLOWS: Final = (PIPELINES, INSTRUCTIONS)
RATE: Final = 40.0
"""Requests a second while processor time is read: no queue on a slow machine either."""
MOST_OVER_LEGACY: Final = 2.5
MOST_APPROVAL_BYTES: Final = 20_000
USUAL_MODEL: Final = Profile(ttft_ms=400.0, rate=60.0, tokens=CHUNKS, split=True)
"""A hosted model on an ordinary day: every call answers after 400 ms, with 60 pieces a second."""
REPLY_S: Final = {1: 5.0, 5: 10.0}
"""The documents' longest seconds of a reply, by how many users ask at once."""
_AT_ONCE: Final = 1_000.0
"""Requests a second while several users ask "at once"."""


async def measure(effort: Effort) -> list[BenchRow]:
    """Measure both stacks in turn, flow by flow."""
    found: list[BenchRow] = []
    for profile, rows_of in ((Profile(tokens=CHUNKS, split=True), _costs), (USUAL_MODEL, _waits)):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory()))
            provider = stack.enter_context(spawn(profile))
            servers = (
                stack.enter_context(router_server("legacy", folder, provider, Shares(graph=0))),
                stack.enter_context(router_server("graph", folder, provider, Shares(graph=100))),
            )
            for flow in FLOWS:
                found += await rows_of(servers, flow, effort)
            if rows_of is _costs:
                found += [await _paused(server, folder) for server in servers]
    return found


async def _costs(servers: Sequence[BenchServer], flow: FlowLoad, effort: Effort) -> list[BenchRow]:
    chance, name = random.Random(SEED), flow.spec.name
    costs: dict[str, list[float]] = {server.name: [] for server in servers}
    for number in range(1 + effort.rounds):
        trace = LoadTrace(RATE, effort.seconds, SEED + number)
        for server in chance.sample(servers, len(servers)):
            cost = await _cost(server, trace, flow)
            if number:  # the first round warms up
                costs[server.name].append(cost)
        effort.advance(number / effort.rounds)
    return cost_rows(name, costs)


async def _cost(server: BenchServer, trace: LoadTrace, flow: FlowLoad) -> float:
    """Return the processor milliseconds of one request, work after the answer included."""
    before = server.cpu()
    loaded = await load(server, trace, flow)
    await asyncio.sleep(SETTLE_S)
    return 1_000 * (await quiet(server) - before) / len(loaded)


def cost_rows(flow: str, costs: Mapping[str, Sequence[float]]) -> list[BenchRow]:
    """Put the processor milliseconds of the rounds, by stack, into rows."""
    pairs = list(zip(costs["graph"], costs["legacy"], strict=True))
    ratio = bootstrap(pairs, ratio_of_medians)
    how = (
        f"{CHUNKS}-chunk answers at zero delay, {RATE:.0f} requests a second, processor time of "
        f"the server process by the kernel's clock, captures on; median of {len(pairs)} rounds"
    )
    interval = f"95 % [{ratio.low:.2f}, {ratio.high:.2f}] by bootstrap over rounds"
    return [
        *(
            reported(f"{flow}.{stack}.cpu_per_request", median(values), "ms", how)
            for stack, values in costs.items()
        ),
        at_most(
            f"{flow}.graph_over_legacy", ratio.value, "×", MOST_OVER_LEGACY, f"{how}; {interval}"
        ),
    ]


async def _paused(server: BenchServer, folder: Path) -> BenchRow:
    """Ask for a risky instruction, and read how much is stored until it is approved."""
    asked = {"session_id": "risky", "input": "delete temporary files *.log"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(server.url + OPS.path, json=asked) as response,
    ):
        await response.read()
    with closing(sqlite3.connect(folder / server.name / "cutover.sqlite")) as connection:
        query = "SELECT length(tape) + length(question) FROM graph_checkpoints"
        ((size,),) = connection.execute(query)
    return at_most(
        f"ops.{server.name}.approval_bytes",
        size,
        "bytes",
        MOST_APPROVAL_BYTES,
        "stored while one instruction waits for its approval, from which either stack continues; "
        "pipeline stores nothing beside its turns; documents: checkpoints of 10-20 KB",
    )


async def _waits(servers: Sequence[BenchServer], flow: FlowLoad, effort: Effort) -> list[BenchRow]:
    found: list[BenchRow] = []
    for server in servers:
        for users, most in REPLY_S.items():
            taken: list[float] = []
            for _ in range(effort.rounds):
                rows = await answered(server, Constant(_AT_ONCE), (users + 0.5) / _AT_ONCE, flow)
                taken += moments(unbroken(server, rows), "ttle")
            how = (
                f"the slowest of {effort.rounds} × {users} asked at once, to the last frame; the "
                "model answers after 400 ms, with 60 pieces a second; documents: 5 s, 10 s for five"
            )
            name = f"{flow.spec.name}.{server.name}.reply_{users}_at_once"
            found.append(at_most(name, max(taken) / 1_000, "s", most, how))
    return found
