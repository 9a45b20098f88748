"""Clocks of tests: the running loop's, and one that is moved by hand."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


def now() -> float:
    """Return the time of the running loop, which jumps where a test is `virtual`."""
    return asyncio.get_running_loop().time()


@dataclass
class Clock:
    """A wall clock one can move."""

    now: float = 1_790_000_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now
