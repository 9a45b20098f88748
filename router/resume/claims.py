"""Claims: one router at a time resumes a paused exchange, by a lease that it renews."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from contract.errors import EffectFailed
from effects.stores import ClaimReply, Pause, PauseStore
from effects.tape import Entry

log = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
"""A claim that is not renewed for so long may be taken by another router."""
_RENEWALS = 3
"""Per lease: one that fails is made up for."""
_RETRIES_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Waits between attempts to store the end of a claim: mostly while its lease lasts."""


def _nothing() -> None:
    return None


class Claim:
    """A pause this router resumes; renewed until it is finished or given back.

    It is the journal of the exchange: each write is on the tape of the pause before it is made,
    and its result before anything follows from it (docs/decisions/0031).

    `expires_at` is when the pause would have expired before it was claimed: a later turn of its
    session changes that.
    """

    def __init__(
        self,
        store: PauseStore,
        pause: Pause,
        owner: str,
        expires_at: float,
    ) -> None:
        self.pause = pause
        self.encode_tape: Callable[[], bytes | None] = _nothing
        """Encodes the tape as it is now, stored with each write and renewal."""
        self.on_lost: Callable[[], None] = _nothing
        """Called once another router may have resumed the pause."""
        self._store = store
        self._owner = owner
        self._expires_at = expires_at
        self._stored = pause.tape
        self._renewing = asyncio.Lock()
        self._ended = False
        self._task = asyncio.get_running_loop().create_task(self._keep(), name="renew claim")

    @property
    def hitl_id(self) -> str:
        """Which pause it is."""
        return self.pause.hitl_id

    async def confirm(self) -> ClaimReply:
        """Check that it is still `claimed`, now that its session is locked.

        Before that the session may have been deleted with its pauses, or gone on to another turn.
        Raises `EffectFailed`.
        """
        if not await self._store.renew(self.hitl_id, self._owner, LEASE_SECONDS):
            return "unknown"
        pause = await self._store.get(self.hitl_id)
        outdated = pause is None or pause.expires_at != self._expires_at
        return "expired" if outdated else "claimed"

    async def begin(self, _entry: Entry, /) -> bool:
        """Store that a write begins; False where another router may have resumed the pause.

        A process that hung may wake up after its lease.
        """
        try:
            held = await self._renew()
        except EffectFailed as failure:
            log.warning("pause %s cannot be held: %s", self.hitl_id, failure.fault.code)
            held = False
        if not held:
            self.on_lost()
        return held

    async def end(self, _entry: Entry, /) -> None:
        """Store the result of a write; where that fails, the next renewal stores it."""
        try:
            await self._renew()
        except EffectFailed as failure:
            log.warning("pause %s lacks a result: %s", self.hitl_id, failure.fault.code)

    async def finish(self) -> None:
        """The exchange has gone on to its end, or to another question."""
        await self._end(self._finish, _RETRIES_SECONDS)

    async def remove(self) -> None:
        """What it held is done, and no client asks for it."""
        remove = partial(self._store.remove, self.hitl_id, self._owner)
        await self._end(remove, _RETRIES_SECONDS)

    async def give_back(self, tape: bytes | None) -> None:
        """It broke off: store the tape for the next claim, where there is more on it by now."""
        await self._end(partial(self._give_back, tape), _RETRIES_SECONDS)

    async def release(self) -> None:
        """It was not resumed; tried once, because a client waits for the answer."""
        await self._end(partial(self._store.release, self.hitl_id, self._owner), ())

    async def _end(self, store: Callable[[], Awaitable[object]], waits: Iterable[float]) -> None:
        # A store may swallow a cancellation that meets its answer: then the flag ends the task.
        self._ended = True
        self._task.cancel()
        self.on_lost = _nothing
        for wait in (*waits, None):
            try:
                await store()
            except EffectFailed as failure:
                if wait is None:
                    log.warning("the end of pause %s: %s", self.hitl_id, failure.fault.code)
                    return
            else:
                return
            await asyncio.sleep(wait)

    async def _finish(self) -> None:
        """Finish it, also where another router took it while it could not be renewed.

        That router could not resume it, as the session was locked, and has given it back since.
        """
        if await self._store.finish(self.hitl_id, self._owner):
            return
        if await self._store.claim(self.hitl_id, self._owner, LEASE_SECONDS) == "claimed":
            await self._store.finish(self.hitl_id, self._owner)

    async def _give_back(self, tape: bytes | None) -> None:
        if await self._store.release(self.hitl_id, self._owner, tape):
            return
        if await self._take_again():
            await self._store.release(self.hitl_id, self._owner, tape)

    async def _renew(self) -> bool:
        """Renew it, with the tape so far; returns False where it is lost. Raises `EffectFailed`."""
        async with self._renewing:
            tape = self.encode_tape()
            renew = partial(self._store.renew, self.hitl_id, self._owner, LEASE_SECONDS, tape)
            # Ended: the cancellation of the task was not heard. What is given back stays so.
            if not await renew() and (
                self._ended or not await self._take_again() or not await renew()
            ):
                return False
            self._stored = self._stored if tape is None else tape
            return True

    async def _take_again(self) -> bool:
        """Claim it anew: where the tape is as this router left it, nothing was done meanwhile."""
        pause = await self._store.get(self.hitl_id)
        if pause is None or pause.tape != self._stored:
            return False
        return await self._store.claim(self.hitl_id, self._owner, LEASE_SECONDS) == "claimed"

    async def _keep(self) -> None:
        while not self._ended:
            await asyncio.sleep(LEASE_SECONDS / _RENEWALS)
            try:
                held = await self._renew()
            except EffectFailed as failure:
                log.warning("pause %s is not renewed: %s", self.hitl_id, failure.fault.code)
                continue
            if not held and not self._ended:
                log.warning("pause %s was lost before its exchange ended", self.hitl_id)
                self.on_lost()
                return
