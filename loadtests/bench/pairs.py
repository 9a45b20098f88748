"""Loading two servers in turn: pairs of short runs on the same arrivals, the order drawn.

The quieter half of the pairs counts, quiet by what *others* used of the machine meanwhile: that
is known without looking at the figures, and so favours nobody.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from loadtests.bench.effort import Effort
from loadtests.bench.neighbours import watching
from loadtests.bench.open_load import CHATS, Asked, Trace, load, moments
from loadtests.bench.process import Server
from loadtests.bench.row import Row as BenchRow
from loadtests.bench.row import at_most
from loadtests.bench.statistic import SEED, Estimate, bootstrap, difference_of_p95
from loadtests.rows import Row

BUSY = 0.25
"""Share of the machine that others may use."""


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """The rows of one pair of runs, control first; `others`: their share of the machine."""

    control: Sequence[Row]
    candidate: Sequence[Row]
    others: float


async def load_in_turn(
    name: str, servers: tuple[Server, Server], rate: float, effort: Effort, asked: Asked = CHATS
) -> list[LoadedPair]:
    """Load control and candidate, `effort.pairs` times each; tells its progress as `name`."""
    chance, pairs = random.Random(SEED), []
    for number in range(effort.pairs):
        trace = Trace(rate, effort.seconds, chance.getrandbits(32))
        found: dict[str, list[Row]] = {}
        with watching() as neighbours:
            for server in chance.sample(servers, len(servers)):
                found[server.name] = await load(server, trace, asked)
        control, candidate = (found[server.name] for server in servers)
        pairs.append(LoadedPair(control, candidate, neighbours.share))
        effort.advance(name, (number + 1) / effort.pairs)
    return quieter(pairs)


def quieter(pairs: Sequence[LoadedPair]) -> list[LoadedPair]:
    """Give the half of the pairs, rounded up, during which others used least."""
    ordered = sorted(pairs, key=lambda pair: pair.others)
    return ordered[: (len(pairs) + 1) // 2]


def p95_rise(pairs: Sequence[LoadedPair], metric: str) -> Estimate:
    """Estimate P95 of the candidate less P95 of the control, milliseconds."""
    values = [(moments(pair.control, metric), moments(pair.candidate, metric)) for pair in pairs]
    return bootstrap(values, difference_of_p95)


def rise_row(
    name: str, pairs: Sequence[LoadedPair], metric: str, target: float, how: str
) -> BenchRow:
    """Judge a rise of P95, in milliseconds.

    Where others kept the machine busy and the interval holds the target, nobody can tell: then
    there is no verdict, which is not a pass.
    """
    rise, others = p95_rise(pairs, metric), max(pair.others for pair in pairs)
    row = at_most(name, rise.value, "ms", target, f"{how}; {method(pairs, rise)}")
    if others > BUSY and rise.low <= target < rise.high:
        row = msgspec.structs.replace(row, ok=None, how=f"cannot tell, busy machine; {row.how}")
    return row


def method(pairs: Sequence[LoadedPair], rise: Estimate) -> str:
    """Say how a rise was measured."""
    requests = sum(len(pair.control) + len(pair.candidate) for pair in pairs)
    return (
        f"median difference of exact P95s of {len(pairs)} pairs of runs on the same arrivals, "
        f"order drawn, {requests} requests, 95 % [{rise.low:.2f}, {rise.high:.2f}] by bootstrap "
        "over pairs; the quieter half of all pairs, others used up to "
        f"{max(pair.others for pair in pairs):.0%} of the machine; the provider answers after "
        "200 ms without jitter"
    )
