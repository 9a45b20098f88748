"""Measures what `@effect` adds to a function, for the bench; rows go to stdout.

    python -m benchmarks.parts.effects CALLS

In process, in the run that serves: asked of the tape, performed, and on the tape.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Final

import msgspec
import uvloop

from benchmarks.rows import BenchRow, at_most
from contract.flow import Request
from contract.flows.chat import CHAT
from cutover_client import effect
from effects.tape import TapeSession
from effects.testing import World
from router.gateway.in_process import client_bound
from router.serving.run import RunRequest

MOST_IN_PROCESS_US: Final = 30.0
MOST_OUTSIDE_US: Final = 1.0
ROUNDS: Final = 15
_ORDER: Final = {"item": "tea", "count": 2}

Insert = Callable[[dict[str, object]], Awaitable[int]]


async def insert(order: dict[str, object]) -> int:
    """Do as little as a function can."""
    return len(order)


taped: Insert = effect("orders.insert")(insert)


async def microseconds(function: Insert, calls: int) -> float:
    """Return what a call takes."""
    began = time.perf_counter()
    for _ in range(calls):
        await function(_ORDER)
    return (time.perf_counter() - began) * 1_000_000 / calls


async def in_process(calls: int) -> float:
    """Return what a call takes in a run of an exchange of its own."""
    exchange = World().exchange()
    session = TapeSession(exchange, "serving")
    with client_bound(RunRequest(CHAT, "legacy", Request(None, None), "serving"), session):
        took = await microseconds(taped, calls)
    await exchange.close()
    return took


async def measure(calls: int) -> list[BenchRow]:
    """Measure both, each round beside the function alone."""
    inside: list[float] = []
    outside: list[float] = []
    for _ in range(ROUNDS):
        gc.collect()
        alone = await microseconds(insert, 10 * calls)
        outside.append(await microseconds(taped, 10 * calls) - alone)
        inside.append(await in_process(calls) - alone)
    return [
        _row("effect.in_process", inside, calls, MOST_IN_PROCESS_US),
        _row("effect.outside_an_exchange", outside, 10 * calls, MOST_OUTSIDE_US),
    ]


def _row(name: str, found: list[float], calls: int, most: float) -> BenchRow:
    how = (
        f"what @effect adds to a coroutine function, one after the other, without a journal; "
        f"median of {len(found)} rounds of {calls} calls, the worst {max(found):.3g} µs"
    )
    return at_most(name, median(found), "µs", most, how)


def main() -> None:
    """Measure and print."""
    rows = uvloop.run(measure(int(sys.argv[1])))
    sys.stdout.buffer.write(msgspec.json.encode(rows))


if __name__ == "__main__":
    main()
