"""How much later the graph stack begins to answer than the legacy one."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from loadtests.bench.asking import client
from loadtests.bench.capacity import CHUNKS, IN_FLIGHT, cost_of
from loadtests.bench.effort import Effort
from loadtests.bench.pairs import load_in_turn, rise_row
from loadtests.bench.router import Rollout, routing
from loadtests.bench.row import Row
from loadtests.simulator import Profile, spawn

FIRST_TOKEN_MS = 200.0
TARGET_MS = 2.0
SHARE = 1 / 3
METRICS = {"first_frame": "ttfe", "first_text": "ttft"}


def slow_provider() -> Profile:
    """Give a provider that thinks for a while, always for as long."""
    return Profile(ttft_ms=FIRST_TOKEN_MS, tokens=CHUNKS, split=True)


async def measure(effort: Effort) -> list[Row]:
    """Measure both stacks in turn."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        provider = stack.enter_context(spawn(slow_provider()))
        servers = (
            stack.enter_context(routing("legacy", folder, provider, Rollout(graph=0))),
            stack.enter_context(routing("graph", folder, provider, Rollout(graph=100))),
        )
        async with client(IN_FLIGHT) as session:
            costs = [await cost_of(session, server, effort.requests // 2) for server in servers]
        rate = SHARE * 1_000 / max(costs)
        pairs = await load_in_turn("first frame", servers, rate, effort)
    how = f"a third of the graph stack's capacity, {rate:.0f}/s"
    return [
        rise_row(f"chat.{name}.p95_graph_minus_legacy", pairs, metric, TARGET_MS, how)
        for name, metric in METRICS.items()
    ]
