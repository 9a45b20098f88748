"""Completion: the end of an exchange, its runs first; at once where nothing has to be awaited."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from contract.records import ErrorRecord
from effects.tape import Exchange
from router.serving.run import Run
from router.stack import RunOutcome

log = logging.getLogger(__name__)

_LINGERED = RunOutcome("completed", error=ErrorRecord("lingered"))

STOP_SECONDS = 1.0
"""Seconds a run has to end once it has been cancelled."""
GRACE_SECONDS = 0.1
"""Seconds the last bytes of a response are held for its exchange to end."""


class Completion:
    """Ends an exchange once its `runs` are all there will be.

    The last run has `patience` seconds to end by itself after its terminal frame.
    """

    def __init__(self, exchange: Exchange, runs: Sequence[Run], patience: float) -> None:
        self._exchange = exchange
        self._runs = runs
        self._patience = patience
        self._done = False
        self._closing: asyncio.Task[None] | None = None
        self._releasing: asyncio.Task[None] | None = None

    def close_now(self) -> bool:
        """End the exchange without waiting; returns False where that is not possible."""
        if self._closing is not None:
            return self._closing.done()
        if not self._done and all(run.stopped for run in self._runs):
            self._done = self._exchange.close_if_idle()
            if self._done:
                self._drop_unread()
        return self._done

    async def close(self, *, disconnected: bool) -> None:
        """Let the runs end, then the exchange."""
        if not self.close_now():
            await asyncio.shield(self._start(disconnected=disconnected))

    async def close_in_grace(self, *, disconnected: bool, afterwards: bool) -> None:
        """Close, or go on closing in the background after `GRACE_SECONDS`.

        A flow that works `afterwards` by design is not waited for; the locks that it needs no
        longer are released.
        """
        if self.close_now():
            return
        await asyncio.sleep(0)  # a run that has just sent its terminal frame needs a turn to end
        if self.close_now():
            return
        closing = self._start(disconnected=disconnected)
        if afterwards:
            loop = asyncio.get_running_loop()
            self._releasing = loop.create_task(self._exchange.release_locks(), name="release locks")
        await asyncio.wait({self._releasing or closing}, timeout=GRACE_SECONDS)

    def _start(self, *, disconnected: bool) -> asyncio.Task[None]:
        if self._closing is None:
            loop = asyncio.get_running_loop()
            self._closing = loop.create_task(
                self._close(disconnected=disconnected), name="finish exchange"
            )
        return self._closing

    async def _close(self, *, disconnected: bool) -> None:
        last = self._runs[-1] if self._runs else None
        if last is None or (disconnected and not last.complete):
            await self._exchange.cancel_reads()
        elif not (last.session.fenced or await last.wait_stopped(self._patience)):
            last.fence(_LINGERED)
        for run in self._runs:
            if not await run.wait_stopped(STOP_SECONDS):
                log.error("%s %s does not end; it is left behind", run.role, run.stack)
        self._drop_unread()
        await self._exchange.close()

    def _drop_unread(self) -> None:
        """Drop also the frames that a client which stopped reading never got."""
        if self._exchange.tape.usage.frames_overflowed and self._runs:
            last = self._runs[-1]
            last.drop(len(last.frames) - 1)
