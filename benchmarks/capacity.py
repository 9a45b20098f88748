"""How many chats a second of processor time serves: both stacks against the plain baseline."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import aiohttp

from benchmarks.harness import (
    PROBES,
    BenchServer,
    Effort,
    Shares,
    ask,
    bodies,
    client,
    keep_asking,
    plain_server,
    router_server,
)
from benchmarks.rows import SEED, BenchRow, at_least, bootstrap, ratio_of_medians, reported
from loadtests.simulator import Profile, spawn

CHUNKS = 64
IN_FLIGHT = 20
TARGETS = {"legacy": 2.9, "graph": 2.0}
QUIET_S = 0.3
# Captures are written within a second of the answer; they belong to the request.
SETTLE_S = 1.2


async def measure(effort: Effort) -> list[BenchRow]:
    """Measure all three in turn."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        provider = stack.enter_context(spawn(Profile(tokens=CHUNKS, split=True)))
        servers = (
            stack.enter_context(plain_server(folder, provider)),
            stack.enter_context(router_server("legacy", folder, provider, Shares(graph=0))),
            stack.enter_context(router_server("graph", folder, provider, Shares(graph=100))),
        )
        async with client(IN_FLIGHT) as session:
            same = await same_bytes(session, servers)
            costs = await _rounds(session, servers, effort)
    return rows(costs, same=same, requests=effort.requests)


async def _rounds(
    session: aiohttp.ClientSession, servers: Sequence[BenchServer], effort: Effort
) -> dict[str, list[float]]:
    """Return the processor milliseconds per request of each server, round by round."""
    chance = random.Random(SEED)
    costs: dict[str, list[float]] = {server.name: [] for server in servers}
    for server in servers:
        await keep_asking(session, server, effort.requests // 2, IN_FLIGHT)
    for number in range(effort.rounds):
        for server in chance.sample(servers, len(servers)):
            costs[server.name].append(await cost_of(session, server, effort.requests))
        effort.advance((number + 1) / effort.rounds)
    return costs


async def cost_of(session: aiohttp.ClientSession, server: BenchServer, requests: int) -> float:
    """Return the processor milliseconds of one request, work after the answer included."""
    before = server.cpu()
    await keep_asking(session, server, requests, IN_FLIGHT)
    await asyncio.sleep(SETTLE_S)
    return 1_000 * (await quiet(server) - before) / requests


async def quiet(server: BenchServer) -> float:
    """Wait until a server is idle; return its processor seconds."""
    last = server.cpu()
    while True:
        await asyncio.sleep(QUIET_S)
        now = server.cpu()
        if now - last < QUIET_S / 20:
            return now
        last = now


async def same_bytes(session: aiohttp.ClientSession, servers: Sequence[BenchServer]) -> bool:
    """Whether all servers put the same bytes on the wire for the same questions."""
    answers = []
    for server in servers:
        requests = bodies(f"same-{server.name}", PROBES)
        answers.append([await ask(session, server, next(requests)) for _ in PROBES])
    return all(other == answers[0] for other in answers)


def rows(rounds: Mapping[str, Sequence[float]], *, same: bool, requests: int) -> list[BenchRow]:
    """Put the rounds into rows."""
    count = len(rounds["plain"])
    how = (
        f"{CHUNKS}-chunk answers at zero delay, {IN_FLIGHT} in flight, processor time of the "
        f"server process by the kernel's clock; {count} rounds of {requests} requests, order "
        "drawn; captures on in the router, none in the baseline"
    )
    found = [
        reported(f"chat.{name}.cpu_per_request", median(values), "ms", f"median round; {how}")
        for name, values in rounds.items()
    ]
    for name, target in TARGETS.items():
        pairs = list(zip(rounds["plain"], rounds[name], strict=True))
        ratio = bootstrap(pairs, ratio_of_medians)
        method = (
            f"requests per processor second over the plain endpoint's, median of the rounds' "
            f"ratios, 95 % [{ratio.low:.2f}, {ratio.high:.2f}] by bootstrap over rounds; {how}"
        )
        found.append(at_least(f"chat.{name}.over_plain", ratio.value, "×", target, method))
    checked = f"{len(PROBES)} answers of all three servers, tools included, byte by byte"
    return [*found, at_least("chat.same_bytes", float(same), "yes", 1.0, checked)]
