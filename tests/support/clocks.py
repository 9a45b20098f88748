"""Clocks of tests: the running loop's time and turns, and a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


def now() -> float:
    """Return the time of the running loop, which jumps where a test is `virtual`."""
    return asyncio.get_running_loop().time()


def let_pass(seconds: float) -> None:
    """Set the running loop's clock forward: limits that are over by then end at once."""
    loop = asyncio.get_running_loop()
    time = loop.time
    loop.time = lambda: time() + seconds  # type: ignore[method-assign] # of a test's own loop


@dataclass
class Clock:
    """A wall clock one can move."""

    now: float = 1_790_000_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@dataclass
class LoopTurns:
    """How many turns the loop has made for others."""

    count: int = 0


@asynccontextmanager
async def counted_turns() -> AsyncIterator[LoopTurns]:
    """Count the turns that the loop makes for others within the block."""
    turns = LoopTurns()

    async def others() -> None:
        while True:
            turns.count += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(others())
    try:
        yield turns
    finally:
        counting.cancel()
