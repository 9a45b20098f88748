"""Claims: who goes on from a pause, for as long as nobody else can, to its end."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from contract.errors import EffectFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from effects.stores import ClaimReply, Pause, PauseStore

log = logging.getLogger(__name__)

LEASE = 30.0
"""Seconds after which a pause may be gone on from by others when nobody renews its claim."""
_SPARE = 5.0
"""Seconds of a lease in which nothing is begun by it: the clocks of hosts differ."""
_RENEWALS = 3
"""Of a claim within its lease: one that fails is made up for."""
_RESTS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between the attempts to keep the end of a claim: while its lease lasts, mostly."""


def _nothing() -> None:
    return None


class Claim:
    """A pause somebody goes on from; renewed until it is finished or given back.

    `wall` is the clock the pauses' store has in this process, in seconds; `expires_at` is when the
    pause would have expired before it was claimed: a turn that passes it by changes that.
    """

    def __init__(
        self,
        store: PauseStore,
        pause: Pause,
        owner: str,
        wall: Callable[[], float],
        expires_at: float,
    ) -> None:
        self.pause = pause
        self.so_far: Callable[[], bytes | None] = _nothing
        """Gives the tape as it is now, to be kept with each renewal: this process may die."""
        self.lost: Callable[[], None] = _nothing
        """Is called once somebody else may have gone on."""
        self._store = store
        self._owner = owner
        self._wall = wall
        self._expires_at = expires_at
        self._until = pause.leased_until - _SPARE
        self._kept = pause.tape
        self._keeping = asyncio.Lock()
        self._over = False
        self._renewing = asyncio.get_running_loop().create_task(self._renew(), name="renew claim")

    @property
    def hitl_id(self) -> str:
        """Which pause it is."""
        return self.pause.hitl_id

    async def confirm(self) -> ClaimReply:
        """Say whether it is `claimed` still, now that its session is; raises `EffectFailed`.

        Before that the session may have been deleted with its pauses, or gone on to another turn.
        """
        if not await self._store.renew(self.hitl_id, self._owner, LEASE):
            return "unknown"
        pause = await self._store.get(self.hitl_id)
        passed_by = pause is None or pause.expires_at != self._expires_at
        return "expired" if passed_by else "claimed"

    async def covers(self) -> bool:
        """Whether something may be begun that must not be done twice.

        A process that hung wakes up behind its lease: what it wants to do others may have done.
        """
        if self._wall() < self._until:
            return True
        try:
            kept = await self._keep()
        except EffectFailed as failure:
            log.warning("pause %s cannot be held: %s", self.hitl_id, failure.fault.code)
            kept = False
        if not kept:
            self.lost()
        return kept

    async def finish(self) -> None:
        """The exchange has gone on to its end, or to another question."""
        await self._end(self._finish, _RESTS)

    async def give_back(self, tape: bytes | None) -> None:
        """It broke off: whoever goes on next gets the tape, where there is more on it by now."""
        await self._end(partial(self._give_back, tape), _RESTS)

    async def let_go(self) -> None:
        """Nobody went on; tried once, for somebody waits to be told."""
        await self._end(partial(self._store.release, self.hitl_id, self._owner), ())

    async def _end(self, keep: Callable[[], Awaitable[object]], rests: Iterable[float]) -> None:
        # A client may swallow a cancellation that meets its answer: then the flag ends it.
        self._over = True
        self._renewing.cancel()
        self.lost = _nothing
        for rest in (*rests, None):
            try:
                await keep()
            except EffectFailed as failure:
                if rest is None:
                    log.warning("the end of pause %s: %s", self.hitl_id, failure.fault.code)
                    return
            else:
                return
            await asyncio.sleep(rest)

    async def _finish(self) -> None:
        """Finish it, also where somebody took it while it could not be renewed.

        Whoever did could not go on, as the session was not free, and has given it back since.
        """
        if await self._store.finish(self.hitl_id, self._owner):
            return
        if await self._store.claim(self.hitl_id, self._owner, LEASE) == "claimed":
            await self._store.finish(self.hitl_id, self._owner)

    async def _give_back(self, tape: bytes | None) -> None:
        if await self._store.release(self.hitl_id, self._owner, tape):
            return
        if await self._take_again():
            await self._store.release(self.hitl_id, self._owner, tape)

    async def _keep(self) -> bool:
        """Renew it, with what was done by now; False where it is lost. Raises `EffectFailed`."""
        async with self._keeping:
            now, tape = self._wall(), self.so_far()
            renew = partial(self._store.renew, self.hitl_id, self._owner, LEASE, tape)
            # Over means that our cancellation was not heard: what is given back stays so.
            if not await renew() and (
                self._over or not await self._take_again() or not await renew()
            ):
                return False
            self._until = now + LEASE - _SPARE
            self._kept = self._kept if tape is None else tape
            return True

    async def _take_again(self) -> bool:
        """Take it back: whoever had it meanwhile did nothing if the tape is as we left it."""
        pause = await self._store.get(self.hitl_id)
        if pause is None or pause.tape != self._kept:
            return False
        return await self._store.claim(self.hitl_id, self._owner, LEASE) == "claimed"

    async def _renew(self) -> None:
        while not self._over:
            await asyncio.sleep(LEASE / _RENEWALS)
            try:
                kept = await self._keep()
            except EffectFailed as failure:
                log.warning("pause %s is not renewed: %s", self.hitl_id, failure.fault.code)
                continue
            if not kept and not self._over:
                log.warning("pause %s was lost before it was over", self.hitl_id)
                self.lost()
                return
