"""News: routers that share a board tell each other of breakers and of what shadows spend."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from contract.errors import EffectFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

    from effects.stores import SharedState
    from router.routing.breakers import Breakers
    from router.shadow.budget import ShadowBudget

LOOK_SECONDS = 1.0
"""How often the board is looked at, and how soon again where it does not answer."""
LIMIT_SECONDS = 2.0
"""How long it may take to answer; later, it counts as away."""

_MEANWHILE = "breakers and the shadow's budget are this router's own"

log = logging.getLogger(__name__)


class News:
    """Exchanges news in the background; who is served never waits for it.

    `fault` says in `/readyz` that the board is away: then what was last heard holds.
    """

    def __init__(
        self,
        board: SharedState,
        breakers: Breakers,
        budget: ShadowBudget,
        flows: Callable[[], Collection[str]],
    ) -> None:
        self.fault: str | None = None
        self._board = board
        self._breakers = breakers
        self._budget = budget
        self._flows = flows
        self._me = uuid4().hex
        self._wake = asyncio.Event()
        self._over = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Exchange news for as long as this is open, and tell the last of it at the end.

        It begins with what others know: a restart finds a stack spared, and the day's sum.
        """
        self._breakers.on_change = self._wake.set
        await self.exchange()
        task = asyncio.create_task(self._run(), name="news")
        try:
            yield
        finally:
            # A client may swallow a cancellation that meets its answer: then the flag ends it.
            self._over = True
            task.cancel()
            await asyncio.wait([task])
            if self.fault is None:
                await self.exchange()

    async def exchange(self) -> None:
        """Tell what is due and hear what there is; a board that is away is a `fault`."""
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await self._post()
                await self._spend()
        except EffectFailed as failure:
            self._away(failure.fault.code)
        except TimeoutError:
            self._away(f"no answer within {LIMIT_SECONDS:g} s")
        except Exception as failure:
            # Whatever it is: nobody would probe for a router that waits for an answer for ever.
            log.exception("news failed")
            self._away(type(failure).__name__)
        else:
            self._answered()

    async def _run(self) -> None:
        while not self._over:
            await self._pause()
            self._wake.clear()
            await self.exchange()

    async def _pause(self) -> None:
        """Wait for the next look; a board that is away is not asked whenever something happens."""
        if self.fault is not None:
            await asyncio.sleep(LOOK_SECONDS)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self._wake.wait()

    async def _post(self) -> None:
        asked = self._breakers.monotonic()
        notes = await self._board.update_notes(self._breakers.due())
        self._breakers.hear(notes, self._flows(), asked)

    async def _spend(self) -> None:
        if not self._budget.limited:
            return
        day, own = self._budget.spent()
        self._budget.share(day, own, await self._board.report_spending(day, self._me, own))

    def _away(self, why: str) -> None:
        if self.fault is None:
            log.warning("the board: %s; %s", why, _MEANWHILE)
        self.fault = f"{why}; {_MEANWHILE}"
        self._breakers.alone = True

    def _answered(self) -> None:
        if self.fault is not None:
            log.info("the board answers again")
        self.fault = None
        self._breakers.alone = False
