"""Synchronising with the other routers of a fleet: breakers, and what shadows have spent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

from contract.errors import EffectFailed
from effects.stores import SharedState
from router.routing.breakers import Breakers
from router.shadow.budget import ShadowBudget

INTERVAL_SECONDS = 1.0
"""How often the shared state is read, and how soon again where it does not answer."""
TIMEOUT_SECONDS = 2.0
"""How long it may take to answer; later, it counts as unavailable."""

_CONSEQUENCE = "breakers and the shadow's budget are this router's own"

log = logging.getLogger(__name__)


class StateSync:
    """Exchanges state in the background; served requests never wait for it.

    `fault` is set while the shared state is unavailable: what was last read holds.
    """

    def __init__(
        self,
        state: SharedState,
        breakers: Breakers,
        budget: ShadowBudget,
        flows: Callable[[], Collection[str]],
    ) -> None:
        self.fault: str | None = None
        self._state = state
        self._breakers = breakers
        self._budget = budget
        self._flows = flows
        self._me = uuid4().hex
        self._wake = asyncio.Event()
        self._closing = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Synchronise for as long as the block lasts, once before it and once at its end.

        So a router that restarts finds the open breakers and what was spent today.
        """
        self._breakers.on_change = self._wake.set
        await self.exchange()
        task = asyncio.create_task(self._run(), name="state sync")
        try:
            yield
        finally:
            # A store may swallow a cancellation that meets its answer: then the flag ends the task.
            self._closing = True
            task.cancel()
            await asyncio.wait([task])
            if self.fault is None:
                await self.exchange()

    async def exchange(self) -> None:
        """Report what is due and read what others report; sets `fault` where that fails."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                requested = self._breakers.monotonic()
                notes = await self._state.update_notes(self._breakers.due())
                self._breakers.receive(notes, self._flows(), requested)
                if self._budget.limited:
                    day, own = self._budget.spent()
                    others = await self._state.report_spending(day, self._me, own)
                    self._budget.share(day, own, others)
        except EffectFailed as failure:
            self._failed(failure.fault.code)
        except TimeoutError:
            self._failed(f"no answer within {TIMEOUT_SECONDS:g} s")
        except Exception as failure:
            # Whatever it is: a router that waited for a claim for ever would never probe.
            log.exception("synchronising failed")
            self._failed(type(failure).__name__)
        else:
            if self.fault is not None:
                log.info("the shared state: answers again")
            self.fault = None
            self._breakers.alone = False

    async def _run(self) -> None:
        while not self._closing:
            if self.fault is not None:  # changes do not hasten what is unavailable
                await asyncio.sleep(INTERVAL_SECONDS)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(INTERVAL_SECONDS):
                        await self._wake.wait()
            self._wake.clear()
            await self.exchange()

    def _failed(self, detail: str) -> None:
        if self.fault is None:
            log.warning("the shared state: %s; %s", detail, _CONSEQUENCE)
        self.fault = f"{detail}; {_CONSEQUENCE}"
        self._breakers.alone = True
