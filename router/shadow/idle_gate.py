"""Courtesy: work that can wait stands back while anybody is being served."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from effects.tape import TapeSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from effects.tape import Exchange

HOLD = 0.0005
"""Seconds after a sign of serving in which more of it is near: a hop to a thread, a task woken."""
NAP = 0.001
"""Seconds to stand back for before looking again; event loops round timers to milliseconds."""
PATIENCE = 0.25
"""Seconds one run stands back for in all: a loop that is never quiet must not starve it."""


class IdleGate:
    """Knows when somebody was last being served.

    The exchanges of those who are served get `clock`, and each look at it is a sign.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self._last = float("-inf")

    def clock(self) -> float:
        """Tell the time, in seconds, to somebody who serves."""
        self._last = now = self.monotonic()
        return now

    @property
    def quiet(self) -> bool:
        """Whether nobody has just been served."""
        return self.monotonic() - self._last >= HOLD

    async def stand_back(self, patience: float = PATIENCE) -> float:
        """Wait until it is quiet, at most so many seconds; gives what is left of them."""
        while patience > 0 and not self.quiet:
            patience -= NAP
            await asyncio.sleep(NAP)
        return patience


class CourteousRun(TapeSession):
    """A run on the tape of an exchange that leaves the loop to those who are served."""

    def __init__(self, exchange: Exchange, name: str, courtesy: IdleGate) -> None:
        def stamp() -> int:
            return exchange.stamp_of(courtesy.monotonic())

        super().__init__(exchange, name, "nearest", stamp=stamp)
        self.stamp = stamp
        self._courtesy = courtesy
        self._patience = PATIENCE

    async def give_way(self) -> None:
        """Let others have their turn, and the next ones too while they serve."""
        await super().give_way()
        self._patience = await self._courtesy.stand_back(self._patience)
