"""What shadowing every request costs served requests, and how many shadows are compared."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import msgspec

from benchmarks.capacity import IN_FLIGHT, SETTLE_S, cost_of, quiet
from benchmarks.first_frame import slow_provider
from benchmarks.harness import (
    BenchServer,
    Effort,
    LoadedPair,
    LoadTrace,
    Shares,
    client,
    load,
    load_in_turn,
    rise_row,
    router_server,
)
from benchmarks.rows import SEED, BenchRow, at_least, reported
from loadtests.simulator import spawn

RISE_MS = 2.0
LEAST_COMPARED = 95.0
# Long enough that the queue of the shadows is no place to hide the work in.
LONG_RUN = 3.0


class ShadowLine(msgspec.Struct, frozen=True):
    """How many requests ended in a state."""

    state: str
    count: int


class ShadowLedger(msgspec.Struct, frozen=True):
    """The shadow ledger of `/readyz`."""

    open: int
    lines: tuple[ShadowLine, ...]

    def count(self, state: str) -> int:
        """Count the requests that ended in a state."""
        return sum(line.count for line in self.lines if line.state == state)

    @property
    def total(self) -> int:
        """Count all requests, settled or not."""
        return self.open + sum(line.count for line in self.lines)

    def share_since(self, earlier: ShadowLedger) -> float:
        """Share of the requests since then that were compared, in per cent."""
        requests = self.total - earlier.total
        compared = self.count("compared") - earlier.count("compared")
        return 100 * compared / requests if requests else 0.0


class _Ready(msgspec.Struct, frozen=True):
    ledger: ShadowLedger


@dataclass(frozen=True, slots=True)
class Pressed:
    """At two thirds of capacity: CPU milliseconds per request without and with shadows."""

    without: float
    shadowed: float
    compared: float

    @property
    def lost(self) -> float:
        """Share of the capacity that the shadows take, in per cent."""
        return 100 * (1 - self.without / self.shadowed)


async def measure(effort: Effort) -> list[BenchRow]:
    """Measure a router without shadows and one that shadows everything, in turn."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        provider = stack.enter_context(spawn(slow_provider()))
        servers = (
            stack.enter_context(router_server("bare", folder, provider, Shares())),
            stack.enter_context(router_server("shadowed", folder, provider, Shares(shadow=100))),
        )
        async with client(IN_FLIGHT) as session:
            costs = [await cost_of(session, server, effort.requests // 2) for server in servers]
            capacity = 1_000 / costs[0]
            before = await ledger(session, servers[1])
            pairs = await load_in_turn(servers, capacity / 3, effort)
            await quiet(servers[1])
            share = (await ledger(session, servers[1])).share_since(before)
            pressed = await _press(session, servers, 2 * capacity / 3, effort)
    return rows(pairs, share, pressed, capacity)


async def ledger(session: aiohttp.ClientSession, server: BenchServer) -> ShadowLedger:
    """Read a router's ledger."""
    async with session.get(f"{server.url}/readyz") as response:
        return msgspec.json.decode(await response.read(), type=_Ready).ledger


async def _press(
    session: aiohttp.ClientSession, servers: Sequence[BenchServer], rate: float, effort: Effort
) -> Pressed:
    before = await ledger(session, servers[1])
    costs = []
    for server in servers:
        began = server.cpu()
        loaded = await load(server, LoadTrace(rate, LONG_RUN * effort.seconds, SEED))
        await asyncio.sleep(SETTLE_S)
        costs.append(1_000 * (await quiet(server) - began) / len(loaded))
    share = (await ledger(session, servers[1])).share_since(before)
    return Pressed(costs[0], costs[1], share)


def rows(
    pairs: Sequence[LoadedPair], share: float, pressed: Pressed, capacity: float
) -> list[BenchRow]:
    """Put what was measured into rows."""
    third = f"everything shadowed in the same process, {capacity / 3:.0f}/s"
    most = f"at {2 * capacity / 3:.0f}/s, two thirds of what the router serves without shadows"
    cpu = "processor time per request, shadows and captures included, with and without shadows"
    return [
        rise_row("shadow.p95_ttft_rise_at_a_third", pairs, "ttft", RISE_MS, third),
        at_least("shadow.compared_at_a_third", share, "%", LEAST_COMPARED, "ledger of /readyz"),
        reported(
            "shadow.compared_at_two_thirds", pressed.compared, "%", f"ledger of /readyz, {most}"
        ),
        reported("shadow.capacity_lost_at_two_thirds", pressed.lost, "%", f"{cpu}, {most}"),
    ]
