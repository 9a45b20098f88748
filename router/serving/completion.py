"""Settling: an exchange ends, its stacks first; at once where there is nothing to wait for."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from contract.records import ErrorRecord
from router.serving.run import RunOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from effects.tape import Exchange
    from router.serving.run import Run

log = logging.getLogger(__name__)

_LINGERED = RunOutcome("completed", "nobody", ErrorRecord("lingered"))

LETS_GO = 1.0
"""Seconds a stack has to end once it has been cancelled."""
GRACE = 0.1
"""Seconds the last bytes of an answer are held for its exchange to end."""


class Settling:
    """The end of an exchange; it begins when `drives` are all there will be.

    The last one has `patience` seconds to end by itself, having said its last word.
    """

    def __init__(self, exchange: Exchange, drives: Sequence[Run], patience: float) -> None:
        self._exchange = exchange
        self._drives = drives
        self._patience = patience
        self._done = False
        self._finishing: asyncio.Task[None] | None = None
        self._freeing: asyncio.Task[None] | None = None

    def at_once(self) -> bool:
        """End it there and then; False where something has to be waited for, and is."""
        if self._finishing is not None:
            return self._finishing.done()
        if not self._done and all(drive.over for drive in self._drives):
            self._done = self._exchange.close_if_idle()
            if self._done:
                self._lighten()
        return self._done

    async def finish(self, *, left: bool) -> None:
        """Let the stacks end, then the exchange; `left` is whether the client was not served."""
        if not self.at_once():
            await asyncio.shield(self._finish(left=left))

    async def settle(self, *, left: bool, afterwards: bool) -> None:
        """Finish within `GRACE`, or go on without whoever waits.

        Nor is waited for what a flow does after its end where it is meant to, `afterwards`: what it
        needs no longer is let go of.
        """
        if self.at_once():
            return
        await asyncio.sleep(0)  # a stack that has just said its last word needs a turn to end
        if self.at_once():
            return
        finishing = self._finish(left=left)
        if afterwards:
            loop = asyncio.get_running_loop()
            self._freeing = loop.create_task(self._exchange.release_locks(), name="let go")
        await asyncio.wait({self._freeing or finishing}, timeout=GRACE)

    def _finish(self, *, left: bool) -> asyncio.Task[None]:
        if self._finishing is None:
            loop = asyncio.get_running_loop()
            self._finishing = loop.create_task(self._end(left=left), name="finish")
        return self._finishing

    async def _end(self, *, left: bool) -> None:
        last = self._drives[-1] if self._drives else None
        if last is None or (left and not last.complete):
            await self._exchange.cancel_reads()
        elif not (last.run.fenced or await last.gone(self._patience)):
            last.dismiss(_LINGERED)
        for drive in self._drives:
            if not await drive.gone(LETS_GO):
                log.error("%s %s does not end; it is left behind", drive.role, drive.stack)
        self._lighten()
        await self._exchange.close()

    def _lighten(self) -> None:
        """Let go also of what a client that did not read never got: nobody will ask for it."""
        if self._exchange.tape.usage.frames_overflowed and self._drives:
            last = self._drives[-1]
            last.drop(len(last.frames) - 1)
