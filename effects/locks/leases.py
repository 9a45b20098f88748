"""Locks several processes share: leases that end by themselves unless they are renewed.

A lock is a key that holds its owner's token for a while. The token is compared where the leases are
kept, so nobody can touch a lock that has meanwhile passed to somebody else.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from contract.errors import EffectFailed

if TYPE_CHECKING:
    from collections.abc import Iterable

log = logging.getLogger(__name__)


class Leases(Protocol):
    """Where leases are kept; each call raises `EffectFailed` where that is out of reach."""

    async def hold(self, key: str, token: str, ms: int) -> bool:
        """Take a key nobody holds, or keep an own one, for so many milliseconds from now."""
        ...

    async def let_go(self, key: str, token: str) -> None:
        """Give a key back, if this token holds it."""
        ...

    async def aclose(self) -> None:
        """Disconnect; idempotent."""
        ...


class _Hold:
    """A lock this owner has, for `ms` at a time, and the task that renews it until it is over."""

    __slots__ = ("ms", "over", "renewal")

    def __init__(self, ttl: float) -> None:
        self.ms = max(1, round(ttl * 1000))
        self.over = asyncio.Event()
        self.renewal: asyncio.Task[None] | None = None


class LeasedLocks:
    """One owner of leased locks; `for_exchange()` makes another.

    The first owner disconnects when it is closed. A lock taken by a call that was cancelled before
    its answer came is not renewed and ends after its ttl.
    """

    def __init__(self, leases: Leases, renewed: set[_Hold] | None = None) -> None:
        self._leases = leases
        self._opens = renewed is None
        self._renewed: set[_Hold] = set() if renewed is None else renewed
        self._token = uuid4().hex
        self._holds: dict[str, _Hold] = {}

    def for_exchange(self) -> LeasedLocks:
        """Make another owner of the same locks, on the same connection."""
        return LeasedLocks(self._leases, self._renewed)

    async def acquire(self, site: str, key: str, ttl: float) -> bool:
        """Take a lock nobody holds, without waiting; False when anybody does, this owner too."""
        if key in self._holds:
            return False
        hold = _Hold(ttl)
        if not await self._leases.hold(key, self._token, hold.ms):
            return False
        self._keep(key, hold)
        return True

    def pursue(self, key: str, ttl: float) -> None:
        """Count a lock as held that could not be asked for, and take it when that can be done."""
        if key not in self._holds:
            self._keep(key, _Hold(ttl))

    async def release(self, site: str, key: str) -> None:
        """Let go of a lock of this owner; anything else is left alone."""
        hold = self._holds.pop(key, None)
        if hold is None:
            return
        hold.over.set()
        if hold.renewal is not None:
            # Not cancelled: what is on its way would be done after the letting go.
            await asyncio.wait([hold.renewal])
        await self._leases.let_go(key, self._token)

    async def aclose(self) -> None:
        """Let go of what this owner holds; the first owner ends all renewals and disconnects."""
        for key in list(self._holds):
            try:
                await self.release("close", key)
            except EffectFailed:
                log.warning("lock %r could not be released and expires by itself", key)
        if self._opens:
            await _end(self._renewed)
            await self._leases.aclose()

    def _keep(self, key: str, hold: _Hold) -> None:
        self._holds[key] = hold
        task = asyncio.create_task(
            self._renewing(key, hold), name=f"renewal of {key}", context=Context()
        )
        hold.renewal = task
        self._renewed.add(hold)
        task.add_done_callback(lambda _: self._renewed.discard(hold))

    async def _renewing(self, key: str, hold: _Hold) -> None:
        while not await _set_within(hold.over, hold.ms / 3000):
            try:
                kept = await self._leases.hold(key, self._token, hold.ms)
            except EffectFailed:
                log.warning("lock %r could not be renewed; trying again", key)
            else:
                if not kept:
                    log.warning("lock %r was lost before it was released", key)
                    return


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def _end(holds: Iterable[_Hold]) -> None:
    ending = []
    for hold in holds:
        # A client may swallow a cancellation that meets its answer: then this ends it.
        hold.over.set()
        if hold.renewal is not None:
            hold.renewal.cancel()
            ending.append(hold.renewal)
    if ending:
        await asyncio.wait(ending)
