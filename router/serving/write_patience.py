"""How long a router that stops waits for the writes its exchanges have begun."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from effects.tape import Exchange

log = logging.getLogger(__name__)

SLICE_SECONDS: Final = 0.25
MARGIN_SECONDS: Final = 1.0
"""What a write needs to end at its deadline."""


class WritePatience:
    """The seconds left to wait: those that the writes under way may take when it is first asked.

    Flows that begin others meanwhile do not add to them. `most` returns a bound, 0 for none.
    """

    def __init__(self, most: Callable[[], float]) -> None:
        self._most = most
        self._left: float | None = None

    def seconds_left(self, exchanges: Collection[Exchange]) -> float:
        """Return for how long to wait still; 0 where no write is under way."""
        left = max((one.write_seconds_left for one in exchanges), default=0.0)
        if left <= 0:
            return 0.0
        left += MARGIN_SECONDS
        if self._left is None:
            self._left = min(left, self._most() or left)
            count = sum(len(one.writes) for one in exchanges)
            log.info("waiting for %d writes, at most %.1f s", count, self._left)
        return min(left, self._left)

    def end(self) -> None:
        """Wait no longer for writes than for anything else."""
        self._left = 0.0

    async def wait(self, wait: Callable[[float], Awaitable[object]], seconds: float) -> float:
        """Wait for a slice of so many seconds; return what of it was spent.

        In slices, so that a suspended machine does not use up the shutdown budget.
        """
        loop = asyncio.get_running_loop()
        most, began = min(seconds, SLICE_SECONDS), loop.time()
        await wait(most)
        spent = min(loop.time() - began, most)
        if self._left is not None:
            self._left -= spent
        return spent
