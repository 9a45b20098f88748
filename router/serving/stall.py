"""A stall: a stack owes a sign of life, and gives none for too long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from contract.records import ErrorRecord
from router.serving.run import RunOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from effects.tape import Exchange
    from router.serving.run import Run

_STALLED = RunOutcome("timeout", "stack", ErrorRecord("stall"))
_SOONEST = 1_000
"""Microseconds until another look, at least."""


class StallWatch:
    """Ends the last of the `drives` where it stalls for so many `seconds`."""

    def __init__(self, exchange: Exchange, drives: Sequence[Run], seconds: float) -> None:
        self._exchange = exchange
        self._drives = drives
        self._limit = round(seconds * 1_000_000)
        self._next: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Look from now on, whoever serves; a second time does nothing."""
        if self._next is None:
            self._look()

    def end(self) -> None:
        """Look no more; idempotent."""
        if self._next is not None:
            self._next.cancel()

    def _look(self) -> None:
        """Look whether the stack owes a sign of life for too long; look again when it could."""
        drive, limit = self._drives[-1], self._limit
        if drive.complete:
            return
        owes = drive.run.idle_since()
        idle = 0 if owes is None else self._exchange.stamp() - owes
        if idle >= limit:
            drive.finish(_STALLED)
        wait = limit if idle >= limit else limit - idle
        loop = asyncio.get_running_loop()
        self._next = loop.call_later(max(wait, _SOONEST) / 1_000_000, self._look)
