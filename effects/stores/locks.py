"""Locks: of this process, and leased where several processes see them.

A leased lock is a key that holds its owner's token for a while, and ends by itself unless it is
renewed. The token is compared where the leases are stored, so that no owner can touch a lock that
has meanwhile passed to another.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from typing import Final, Protocol
from uuid import uuid4

from sqlalchemy import ClauseElement, bindparam, delete, or_

from contract.errors import EffectFailed
from effects.circuit_breaker import Dependency
from effects.stores.database import SqlStore
from effects.stores.tables import LEASES, LOCK_CODES, LOCKS, Insert, Statement, bound

log = logging.getLogger(__name__)

CONSEQUENCE = "messages are locked within each process alone"


def lock_name(flow: str, key: str) -> str:
    """Return the name a flow's lock has beside those of other flows."""
    return f"{flow}:{key}" if flow else key


class ProcessLocks:
    """Locks all of whose owners live in this process, and which end with it: none needs a ttl.

    Each object is one owner: make one for every exchange by `for_exchange(flow)`, whose locks are
    those of its flow.
    """

    fault: None = None
    """They never fail, as `LeasedLocks` may."""

    def __init__(self, owners: dict[str, ProcessLocks] | None = None, flow: str = "") -> None:
        self._owners: dict[str, ProcessLocks] = {} if owners is None else owners
        self._flow = flow

    def for_exchange(self, flow: str = "") -> ProcessLocks:
        """Make another owner of the same locks."""
        return ProcessLocks(self._owners, flow)

    async def acquire(self, site: str, key: str, ttl: float) -> bool:
        """Take a free lock without waiting; False while it is held, by this owner too."""
        key = lock_name(self._flow, key)
        if key in self._owners:
            return False
        self._owners[key] = self
        return True

    async def release(self, site: str, key: str) -> None:
        """Release a lock of this owner; any other stays as it is."""
        key = lock_name(self._flow, key)
        if self._owners.get(key) is self:
            del self._owners[key]

    async def aclose(self) -> None:
        """Release every lock of this owner."""
        for key in [key for key, owner in self._owners.items() if owner is self]:
            del self._owners[key]


class Leases(Protocol):
    """Where leases are stored; each call raises `EffectFailed` where that is out of reach."""

    async def hold(self, key: str, token: str, ms: int) -> bool:
        """Take a free key, or extend an own one, for so many milliseconds from now."""
        ...

    async def release(self, key: str, token: str) -> None:
        """Free a key, if this token holds it."""
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
    """One owner of locks that several processes share; `for_exchange(flow)` makes another.

    A lock is always held in the process, and leased where that can be done: one that is taken while
    the leases are out of reach is leased once they are back, at its next renewal. A lock taken by a
    call that was cancelled before its answer came is not renewed and ends after its ttl. `server`
    learns how every call to the leases ended, renewals included.
    """

    def __init__(
        self,
        leases: Leases,
        server: Dependency,
        own: ProcessLocks,
        renewed: set[_Hold] | None = None,
        flow: str = "",
    ) -> None:
        self._leases = leases
        self._server = server
        self._own = own
        self._flow = flow
        self._first = renewed is None
        self._renewed: set[_Hold] = set() if renewed is None else renewed
        self._token = uuid4().hex
        self._holds: dict[str, _Hold] = {}

    @classmethod
    def over(cls, leases: Leases, monotonic: Callable[[], float] = time.monotonic) -> LeasedLocks:
        """Make the first owner, which disconnects when it is closed."""
        return cls(leases, Dependency("locks", CONSEQUENCE, monotonic), ProcessLocks())

    @property
    def fault(self) -> str | None:
        """Why locks are not shared now, and what holds meanwhile; None while they are."""
        return self._server.fault

    def for_exchange(self, flow: str = "") -> LeasedLocks:
        """Make another owner of the same locks, on the same connection."""
        own = self._own.for_exchange()
        return LeasedLocks(self._leases, self._server, own, self._renewed, flow)

    async def acquire(self, site: str, key: str, ttl: float) -> bool:
        """Take a lock that is free as far as can be known, without waiting; False while held."""
        key = lock_name(self._flow, key)
        if not await self._own.acquire(site, key, ttl):
            return False
        hold, acquired = _Hold(ttl), False
        try:
            acquired = await self._lease(key, hold)
        finally:
            if not acquired:
                await self._own.release(site, key)
        if acquired:
            self._renew(key, hold)
        return acquired

    async def release(self, site: str, key: str) -> None:
        """Release a lock of this owner; any other stays as it is."""
        await self._release(lock_name(self._flow, key))

    async def _release(self, key: str) -> None:
        await self._own.release("release", key)
        hold = self._holds.pop(key, None)
        if hold is None:
            return
        hold.over.set()
        if hold.renewal is not None:
            # Not cancelled: a renewal on its way would be done after the release.
            await asyncio.wait([hold.renewal])
        with self._reported():
            await self._leases.release(key, self._token)

    async def aclose(self) -> None:
        """Release this owner's locks; the first owner ends all renewals and disconnects."""
        for key in list(self._holds):
            try:
                await self._release(key)
            except EffectFailed:
                log.warning("lock %r could not be released and expires by itself", key)
        if self._first:
            await _end(self._renewed)
            await self._leases.aclose()

    async def _lease(self, key: str, hold: _Hold) -> bool:
        """Share a lock; True also where the leases cannot be reached: its renewal will take it."""
        if self._server.permitted():
            with suppress(EffectFailed):
                return await self._extend(key, hold)
        return True

    def _renew(self, key: str, hold: _Hold) -> None:
        """Renew a lock in the background."""
        self._holds[key] = hold
        task = asyncio.create_task(
            self._keep_renewing(key, hold), name=f"renewal of {key}", context=Context()
        )
        hold.renewal = task
        self._renewed.add(hold)
        task.add_done_callback(lambda _: self._renewed.discard(hold))

    async def _keep_renewing(self, key: str, hold: _Hold) -> None:
        while not await _set_within(hold.over, hold.ms / 3000):
            try:
                held = await self._extend(key, hold)
            except EffectFailed:
                log.warning("lock %r could not be renewed; trying again", key)
            else:
                if not held:
                    log.warning("lock %r was lost before it was released", key)
                    return

    async def _extend(self, key: str, hold: _Hold) -> bool:
        with self._reported():
            return await self._leases.hold(key, self._token, hold.ms)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except EffectFailed as failure:
            self._server.failed(failure.fault.code)
            raise
        self._server.answered()


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


async def _end(holds: Iterable[_Hold]) -> None:
    renewals = []
    for hold in holds:
        # A client may swallow a cancellation that meets its answer: then this ends it.
        hold.over.set()
        if hold.renewal is not None:
            hold.renewal.cancel()
            renewals.append(hold.renewal)
    if renewals:
        await asyncio.wait(renewals)


def _hold(insert: Insert) -> ClauseElement:
    row = insert(LOCKS).values(bound(LOCKS))
    new = row.excluded
    statement: ClauseElement = row.on_conflict_do_update(
        index_elements=["key"],
        set_={"token": new.token, "expires": new.expires},
        where=or_(LOCKS.c.token == new.token, LOCKS.c.expires <= bindparam("now")),
    )
    return statement


_HOLD: Final = Statement(_hold)
_RELEASE: Final = Statement(
    delete(LOCKS).where(LOCKS.c.key == bindparam("key"), LOCKS.c.token == bindparam("token"))
)
_EXPIRE: Final = Statement(delete(LOCKS).where(LOCKS.c.expires <= bindparam("now")))


class SqlLeases(SqlStore):
    """Leases in a database, timed by the wall clock: set forward by a ttl, it ends them all."""

    schema = LEASES
    codes = LOCK_CODES
    busy_ms = 1_000

    async def hold(self, key: str, token: str, ms: int) -> bool:
        """Take a free key, or extend an own one, for so many milliseconds from now."""
        now = self._wall()
        call = _HOLD(key=key, token=token, expires=now + ms / 1000, now=now)
        return (await self._database.execute(call)).changed == 1

    async def release(self, key: str, token: str) -> None:
        """Free a key, if this token holds it."""
        await self._database.execute(_RELEASE(key=key, token=token))

    async def _expire(self) -> None:
        # Left by a process that was killed; a lock asked for again is taken over anyway.
        await self._database.execute(_EXPIRE(now=self._wall()))
