"""How much later the graph stack sends its first frame and text than the legacy stack."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.capacity import CHUNKS, IN_FLIGHT, cost_of
from benchmarks.harness import (
    CHATS,
    COMPANIONS,
    SESSIONS,
    Effort,
    LoadedPair,
    Shares,
    client,
    load_in_turn,
    rise_row,
    router_server,
)
from benchmarks.rows import BenchRow
from loadtests.simulator import Profile, spawn

FIRST_TOKEN_MS = 200.0
SHARES = ((CHATS, 1 / 3), (SESSIONS, 1 / 6), (COMPANIONS, 1 / 6))
TARGETS_MS = {"ttfe": 2.0, "ttft": 5.0}
METRICS = {"first_frame": "ttfe", "first_text": "ttft"}


def slow_provider() -> Profile:
    """Return a provider whose first token always takes equally long."""
    return Profile(ttft_ms=FIRST_TOKEN_MS, tokens=CHUNKS, split=True)


async def measure(effort: Effort) -> list[BenchRow]:
    """Measure both stacks in turn: chats, sessions, whose graph keeps a thread, and companions."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        provider = stack.enter_context(spawn(slow_provider()))
        servers = (
            stack.enter_context(router_server("legacy", folder, provider, Shares(graph=0))),
            stack.enter_context(router_server("graph", folder, provider, Shares(graph=100))),
        )
        async with client(IN_FLIGHT) as session:
            costs = [await cost_of(session, server, effort.requests // 2) for server in servers]
        found: list[BenchRow] = []
        for flow, share in SHARES:
            rate = share * 1_000 / max(costs)
            pairs = await load_in_turn(servers, rate, effort, flow)
            how = f"{share:.0%} of the graph stack's capacity for chats, {rate:.0f}/s"
            found += _rows(flow.spec.name, pairs, how)
    return found


def _rows(flow: str, pairs: Sequence[LoadedPair], how: str) -> list[BenchRow]:
    return [
        rise_row(f"{flow}.{name}.p95_graph_minus_legacy", pairs, metric, TARGETS_MS[metric], how)
        for name, metric in METRICS.items()
    ]
