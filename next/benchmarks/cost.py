"""What the tape costs: processor time of each stack on it, over the same stack without it."""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import msgspec
import uvloop

from benchmarks.processes import provider
from cutover import Exchange, Request, Run
from harness import root
from harness.config import Settings, StoresTable
from rules.flows import FLOWS
from rules.flows.chat import ChatRequest

CHATS = 8
"""Chats of one measurement."""
FLOW = FLOWS["chat"]


@asynccontextmanager
async def world(chunk_ms: float) -> AsyncIterator[None]:
    """Open a world in memory, whose model is a simulated one in a process of its own."""
    settings = Settings(stores=StoresTable(database="sqlite+aiosqlite://"))
    async with provider(chunk_ms), root.opened(settings):
        yield


def _request(number: int) -> Request[Any, Any]:
    body = ChatRequest(message_id=f"m{number}", content="Tell me of the sea.")
    return Request(body, msgspec.convert({"yield_interval": 0.0}, FLOW.options))


async def chat(stack: str, number: int, *, taped: bool) -> tuple[float, float]:
    """Run one chat; return seconds to the first text and to the end."""
    request, began, first = _request(number), time.perf_counter(), 0.0
    exchange = Exchange()
    with Run(exchange, stack).current() if taped else nullcontext():
        async for event in root.stacks("chat")[stack](request):
            if not first and "content" in event.__struct_fields__ and event.content:  # type: ignore[attr-defined]
                first = time.perf_counter() - began
    await exchange.aclose()
    return first, time.perf_counter() - began


async def processor_ratio(stack: str, pairs: int) -> tuple[float, float, float]:
    """Return the median of paired ratios taped / plain, and both medians in milliseconds a chat."""
    number, ratios, taped_ms, plain_ms = 0, [], [], []

    async def measured(*, taped: bool) -> float:
        nonlocal number
        began = time.process_time()
        for _ in range(CHATS):
            number += 1
            await chat(stack, number, taped=taped)
        return (time.process_time() - began) / CHATS * 1000

    await measured(taped=True)
    await measured(taped=False)
    for pair in range(pairs):
        order = (True, False) if pair % 2 else (False, True)
        found = {taped: await measured(taped=taped) for taped in order}
        ratios.append(found[True] / found[False])
        taped_ms.append(found[True])
        plain_ms.append(found[False])
    medians = map(statistics.median, (ratios, taped_ms, plain_ms))
    ratio, taped, plain = medians
    return ratio, taped, plain


async def first_texts(chats: int) -> tuple[list[float], list[float]]:
    """Return seconds to the first text by legacy and by graph, interleaved."""
    found: dict[str, list[float]] = {"legacy": [], "graph": []}
    for number in range(chats):
        for stack in ("legacy", "graph") if number % 2 else ("graph", "legacy"):
            first, _ = await chat(stack, number * 2 + (stack == "graph"), taped=True)
            found[stack].append(first)
    return found["legacy"][5:], found["graph"][5:]


def percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile by linear interpolation."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def figures(pairs: int = 30, say: Callable[[str], None] = print) -> None:
    """Measure and print the figures of the tape."""

    async def measure() -> None:
        async with world(chunk_ms=0):
            for stack, goal in (("legacy", 1.05), ("graph", 1.15)):
                ratio, taped, plain = await processor_ratio(stack, pairs)
                say(
                    f"processor time on the tape, {stack}: {ratio:.3f} × (goal {goal}); "
                    f"{taped:.1f} and {plain:.1f} ms a chat, medians of {pairs} pairs"
                )
        async with world(chunk_ms=20):
            legacy, graph = await first_texts(pairs * 2)
            for percent in (50, 95):
                later = (percentile(graph, percent) - percentile(legacy, percent)) * 1000
                say(f"first text, graph - legacy, P{percent}: {later:+.1f} ms (goal P95 3 ms)")

    uvloop.run(measure())  # as the server does
