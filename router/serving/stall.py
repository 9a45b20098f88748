"""Stall detection: a run that was offered something and gives no sign of life for too long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from contract.records import ErrorRecord
from effects.tape import Exchange
from router.serving.run import Run
from router.stack import RunOutcome

STALLED = RunOutcome("timeout", "stack", ErrorRecord("stall"))
_SHORTEST_WAIT_US = 1_000


class StallWatch:
    """Ends the last of the `runs` when it stalls for `seconds`.

    One timer for the whole exchange, moved to when the limit could next be reached: a timer per
    frame would cost more than the frame.
    """

    def __init__(self, exchange: Exchange, runs: Sequence[Run], seconds: float) -> None:
        self._exchange = exchange
        self._runs = runs
        self._limit_us = round(seconds * 1_000_000)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Check from now on; a second call does nothing."""
        if self._timer is None:
            self._check()

    def stop(self) -> None:
        """Check no longer; idempotent."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        run, limit = self._runs[-1], self._limit_us
        if run.complete:
            return
        since = run.session.idle_since()
        idle = 0 if since is None else self._exchange.stamp() - since
        if idle >= limit:
            run.finish(STALLED)
        wait = limit if idle >= limit else limit - idle
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(wait, _SHORTEST_WAIT_US) / 1_000_000, self._check)
