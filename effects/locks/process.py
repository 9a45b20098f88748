"""Locks inside this process: the default where one process serves, and the fake in tests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(slots=True)
class _Hold:
    """Who holds a key; `ends` is loop time, set once nobody renews it any more."""

    owner: ProcessLocks
    ttl: float
    ends: float | None = None

    def over(self, now: float) -> bool:
        """Whether the owner is gone and the time has run out."""
        return self.ends is not None and self.ends <= now


class ProcessLocks:
    """Locks all of whose owners live in this process.

    Each object is one owner: give every exchange its own by `for_exchange()`. While the owner is
    there its locks count as renewed; `ttl` matters after `abandon()`, in seconds of loop time.
    """

    fault: None = None
    """Nothing is ever wrong with them, as `SteadyLocks.fault` would tell it."""

    def __init__(self, board: dict[str, _Hold] | None = None) -> None:
        self._board: dict[str, _Hold] = {} if board is None else board

    def for_exchange(self) -> ProcessLocks:
        """Make another owner of the same locks."""
        return ProcessLocks(self._board)

    async def acquire(self, site: str, key: str, ttl: float) -> bool:
        """Take a lock nobody holds, without waiting; False when anybody does, this owner too."""
        hold = self._board.get(key)
        if hold is not None and not hold.over(asyncio.get_running_loop().time()):
            return False
        self._board[key] = _Hold(self, ttl)
        return True

    async def release(self, site: str, key: str) -> None:
        """Let go of a lock of this owner; anything else is left alone."""
        hold = self._board.get(key)
        if hold is not None and hold.owner is self:
            del self._board[key]

    def abandon(self) -> None:
        """Stop renewing without letting go, as a crash would: the locks end after their ttl."""
        now = asyncio.get_running_loop().time()
        for hold in self._board.values():
            if hold.owner is self and hold.ends is None:
                hold.ends = now + hold.ttl

    async def aclose(self) -> None:
        """Let go of everything this owner holds."""
        for key in [key for key, hold in self._board.items() if hold.owner is self]:
            del self._board[key]
