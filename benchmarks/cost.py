"""What the tape costs: processor time of each stack on it, over the same stack without it."""

import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from itertools import count
from typing import Any

import msgspec
import numpy as np

from benchmarks.processes import provider
from cutover import Exchange, Request, Run
from harness import root
from harness.config import Settings, StoresTable
from rules.flows import FLOWS
from rules.flows.chat import ChatRequest

PAIRS = 30
CHATS = 8
"""Chats of one measurement."""
FLOW = FLOWS["chat"]
_numbers = count()


@asynccontextmanager
async def world(chunk_ms: float) -> AsyncIterator[None]:
    """Open a world in memory, whose model is a simulated one in a process of its own."""
    settings = Settings(stores=StoresTable(database="sqlite+aiosqlite://"))
    async with provider(chunk_ms), root.opened(settings):
        yield


async def chat(stack: str, *, taped: bool) -> float:
    """Run one chat and return the seconds to its first text."""
    body = ChatRequest(message_id=f"m{next(_numbers)}", content="Tell me of the sea.")
    request: Request[Any, Any] = Request(
        body, msgspec.convert({"yield_interval": 0.0}, FLOW.options)
    )
    began, first = time.perf_counter(), 0.0
    async with Exchange() as exchange:
        with Run(exchange, stack).current() if taped else nullcontext():
            async for event in root.stacks("chat")[stack](request):
                if not first and getattr(event, "content", None):
                    first = time.perf_counter() - began
    return first


async def processor_times(stack: str) -> dict[bool, list[float]]:
    """Return milliseconds a chat in turns, on the tape (True) and without; the first pair warms."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for pair in range(PAIRS + 1):
        for taped in (True, False) if pair % 2 else (False, True):
            began = time.process_time()
            for _ in range(CHATS):
                await chat(stack, taped=taped)
            if pair:
                found[taped].append((time.process_time() - began) / CHATS * 1000)
    return found


async def first_texts() -> dict[str, list[float]]:
    """Return milliseconds to the first text by both stacks in turns, without the first pairs."""
    found: dict[str, list[float]] = {"legacy": [], "graph": []}
    for pair in range(PAIRS * 2):
        for stack in sorted(found, reverse=bool(pair % 2)):
            found[stack].append(await chat(stack, taped=True) * 1000)
    return {stack: firsts[5:] for stack, firsts in found.items()}


async def figures() -> AsyncIterator[str]:
    """Measure the tape, and how much later the first text of graph comes."""
    async with world(chunk_ms=0):
        for stack, goal in (("legacy", 1.05), ("graph", 1.15)):
            found = await processor_times(stack)
            ratio = statistics.median(map(float.__truediv__, found[True], found[False]))
            taped, plain = (statistics.median(found[one]) for one in (True, False))
            yield (
                f"processor time on the tape, {stack}: {ratio:.3f} × (goal {goal}); "
                f"{taped:.1f} and {plain:.1f} ms a chat, medians of {PAIRS} pairs"
            )
    async with world(chunk_ms=20):
        firsts = await first_texts()
        for percent in (50, 95):
            graph, legacy = (np.percentile(firsts[one], percent) for one in ("graph", "legacy"))
            yield f"first text, graph - legacy, P{percent}: {graph - legacy:+.1f} ms (goal P95 3)"
