"""Services that order, while they, their router and their shop die: no order twice, none untold."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.harness import QUICK, Effort
from benchmarks.rows import SEED, BenchRow, at_most, reported
from benchmarks.services.conversations import Conversations, client
from benchmarks.services.examples import Name, Shares
from benchmarks.services.faults import FAULTS, strike
from benchmarks.services.processes import deployed
from benchmarks.services.truth import Truth, truth
from loadtests.simulator import Profile

PAIRINGS: Final[tuple[tuple[Name, Name], ...]] = (
    ("openai_service", "langgraph_service"),
    ("node_service", "langgraph_service"),
)
AT_ONCE: Final = 24
ROUNDS: Final = 8
APART: Final = 200
"""Events, the most between two faults: a stream has about forty."""
BOTH: Final = Shares(graph=50, shadow=50)
SPEED: Final = Profile(rate=40)


@dataclass(frozen=True, slots=True)
class Strikes:
    """Which faults are struck: each `rounds` times, so far `apart`, while streams are open."""

    rounds: int = ROUNDS
    at_once: int = AT_ONCE
    apart: int = APART


async def measure(effort: Effort) -> list[BenchRow]:
    """Strike both pairings: an eighth as often where the effort is quick."""
    strikes = Strikes() if effort.rounds > QUICK.rounds else Strikes(rounds=1)
    total, done = len(PAIRINGS) * strikes.rounds * len(FAULTS), 0

    def struck() -> None:
        nonlocal done
        done += 1
        effort.advance(done / total)

    rows: list[BenchRow] = []
    for legacy, graph in PAIRINGS:
        with TemporaryDirectory() as folder:
            found = await interrupted(Path(folder), legacy, graph, strikes, struck)
        rows += rows_of(f"services.{legacy}.{graph}", found, strikes)
    return rows


async def interrupted(
    folder: Path,
    legacy: Name,
    graph: Name,
    strikes: Strikes,
    struck: Callable[[], None] = lambda: None,
) -> Truth:
    """Strike one pairing, which keeps everything in a folder; the faults follow from `SEED`."""
    async with deployed(folder, legacy, graph, BOTH, SPEED) as place:
        async with client(strikes.at_once) as session, asyncio.TaskGroup() as tasks:
            conversations = Conversations(place, session)
            tasks.create_task(conversations.hold(strikes.at_once))
            await strike(
                place,
                conversations,
                random.Random(SEED),
                rounds=strikes.rounds,
                apart=strikes.apart,
                struck=struck,
            )
        await place.router.stop()
        return await truth(place, conversations.asked)


def rows_of(name: str, found: Truth, strikes: Strikes) -> list[BenchRow]:
    """Put what became of the orders and streams of one pairing into rows."""
    how = (
        f"{len(found.asked)} exchanges in conversations of two, {strikes.at_once} at once, half "
        f"of them assigned to each service and half shadowed; {len(FAULTS)} faults, each "
        f"{strikes.rounds} times ({', '.join(sorted(FAULTS))}), at events that are drawn"
    )
    endings = found.endings
    placed = sum(grams in found.rows for grams in found.in_doubt)

    def figure(label: str, value: float, unit: str, what: str = "") -> BenchRow:
        return reported(f"{name}.{label}", value, unit, f"{what}; {how}" if what else how)

    def none_of(label: str, value: float, unit: str, what: str) -> BenchRow:
        return at_most(f"{name}.{label}", value, unit, 0, f"{what}; {how}")

    return [
        figure("exchanges", len(found.asked), "exchanges"),
        figure("faults", strikes.rounds * len(FAULTS), "faults"),
        figure("complete", endings["complete"], "streams"),
        figure("takeovers", sum(one.takeovers for one in found.asked), "takeovers"),
        figure("said", endings["error"] + endings["refused"], "streams", "failed, and said so"),
        figure("cut", endings["cut"], "streams", "connections that a killed router had"),
        none_of("silent", len(found.silent), "streams", "ended without a word, or hung"),
        none_of("torn", len(found.torn), "streams", "ended well, and lack text of the model"),
        figure("orders", len(found.rows), "orders", "rows of the shop, by order"),
        none_of("orders_twice", len(found.twice), "orders", "with two rows of the shop"),
        none_of("orders_untold", len(found.untold), "orders", "placed, and in no record"),
        figure("orders_unrecorded", len(found.unrecorded), "orders", "lost with the last batch"),
        none_of("orders_made_up", len(found.made_up), "orders", "recorded or shown, not placed"),
        figure("in_doubt", len(found.in_doubt), "orders", f"{placed} of them were placed"),
    ]
