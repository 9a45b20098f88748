"""Locks inside this process: the default where one process serves, and the fake in tests."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import Context
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from contract.errors import EffectFailed
from effects.rest import Rest
from effects.stores.sqlite import SqliteFile
from effects.stores.tables import Migrations
from effects.stores.values import LOCK_CODES

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator
    from pathlib import Path


class ProcessLocks:
    """Locks all of whose owners live in this process, and which end with it: none needs a ttl.

    Each object is one owner: give every exchange its own by `for_exchange()`.
    """

    fault: None = None
    """Nothing is ever wrong with them, as `SteadyLocks.fault` would tell it."""

    def __init__(self, owners: dict[str, ProcessLocks] | None = None) -> None:
        self._owners: dict[str, ProcessLocks] = {} if owners is None else owners

    def for_exchange(self) -> ProcessLocks:
        """Make another owner of the same locks."""
        return ProcessLocks(self._owners)

    async def acquire(self, site: str, key: str, ttl: float) -> bool:
        """Take a lock nobody holds, without waiting; False when anybody does, this owner too."""
        if key in self._owners:
            return False
        self._owners[key] = self
        return True

    async def release(self, site: str, key: str) -> None:
        """Let go of a lock of this owner; anything else is left alone."""
        if self._owners.get(key) is self:
            del self._owners[key]

    async def aclose(self) -> None:
        """Let go of everything this owner holds."""
        for key in [key for key, owner in self._owners.items() if owner is self]:
            del self._owners[key]


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


MEANWHILE = "messages are locked within each process alone"


class _ObservedLeases:
    """Leases whose keeper's every answer, renewals included, is told."""

    def __init__(self, leases: Leases, keeper: Rest) -> None:
        self._leases = leases
        self._keeper = keeper

    async def hold(self, key: str, token: str, ms: int) -> bool:
        """Take or keep a key."""
        with self._answering():
            return await self._leases.hold(key, token, ms)

    async def let_go(self, key: str, token: str) -> None:
        """Give a key back."""
        with self._answering():
            await self._leases.let_go(key, token)

    async def aclose(self) -> None:
        """Disconnect."""
        await self._leases.aclose()

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except EffectFailed as failure:
            self._keeper.failed(failure.fault.code)
            raise
        self._keeper.answered()


class ResilientLocks:
    """Shared locks, and locks of this process below them; each object is one owner.

    A lock is always held in the process, and shared where that can be done. What is taken while
    the keeper of the leases is away is shared when it is back: at the next renewal.
    """

    def __init__(self, shared: LeasedLocks, own: ProcessLocks, keeper: Rest) -> None:
        self._shared = shared
        self._own = own
        self._keeper = keeper

    @classmethod
    def over(cls, leases: Leases, monotonic: Callable[[], float]) -> ResilientLocks:
        """Make the first owner, which closes the leases in the end."""
        keeper = Rest("locks", MEANWHILE, monotonic)
        return cls(LeasedLocks(_ObservedLeases(leases, keeper)), ProcessLocks(), keeper)

    @property
    def fault(self) -> str | None:
        """What is wrong now, and what holds meanwhile."""
        return self._keeper.fault

    def for_exchange(self) -> ResilientLocks:
        """Make another owner of the same locks."""
        shared, own = self._shared.for_exchange(), self._own.for_exchange()
        return ResilientLocks(shared, own, self._keeper)

    async def acquire(self, site: str, key: str, ttl: float) -> bool:
        """Take a lock nobody holds as far as can be known; False when anybody does."""
        if not await self._own.acquire(site, key, ttl):
            return False
        taken = False
        try:
            taken = await self._share(site, key, ttl)
        finally:
            if not taken:
                await self._own.release(site, key)
        return taken

    async def release(self, site: str, key: str) -> None:
        """Let go of a lock of this owner; anything else is left alone."""
        await self._own.release(site, key)
        await self._shared.release(site, key)

    async def aclose(self) -> None:
        """Let go of what this owner holds."""
        await self._own.aclose()
        await self._shared.aclose()

    async def _share(self, site: str, key: str, ttl: float) -> bool:
        if self._keeper.willing():
            with suppress(EffectFailed):
                return await self._shared.acquire(site, key, ttl)
        self._shared.pursue(key, ttl)
        return True


BUSY_MS = 1_000
"""How long to wait for another writer."""

LOCK_MIGRATIONS: Migrations = (
    (
        """CREATE TABLE locks (
            key TEXT PRIMARY KEY, token TEXT NOT NULL, expires REAL NOT NULL
        ) WITHOUT ROWID""",
    ),
)
_HOLD = """
INSERT INTO locks (key, token, expires) VALUES (?1, ?2, ?3)
ON CONFLICT (key) DO UPDATE SET token = excluded.token, expires = excluded.expires
WHERE locks.token = excluded.token OR locks.expires <= ?4
"""
_LET_GO = "DELETE FROM locks WHERE key = ? AND token = ?"
_EXPIRE = "DELETE FROM locks WHERE expires <= ?"


class SqliteLeases:
    """Leases in an SQLite file; made by `SqliteLeases.open(path)`.

    They are timed by the host's wall clock: one set forward by a ttl ends them all.
    """

    def __init__(self, file: SqliteFile, wall: Callable[[], float]) -> None:
        self._file = file
        self._wall = wall

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: str | Path, wall: Callable[[], float] = time.time
    ) -> AsyncIterator[SqliteLeases]:
        """Open the file, making it where there is none; raises `StoreNotOpened`."""
        async with SqliteFile.open(
            "locks", path, LOCK_MIGRATIONS, LOCK_CODES, busy_ms=BUSY_MS
        ) as file:
            # Left by whoever was killed; a lock that is asked for again is taken over anyway.
            await file.run(_expire, wall())
            yield cls(file, wall)

    async def hold(self, key: str, token: str, ms: int) -> bool:
        """Take a key nobody holds, or keep an own one, for so many milliseconds from now."""
        now = self._wall()
        return await self._file.run(_hold, (key, token, now + ms / 1000, now))

    async def let_go(self, key: str, token: str) -> None:
        """Give a key back, if this token holds it."""
        await self._file.run(_let_go, key, token)

    async def aclose(self) -> None:
        """Close the file; idempotent."""
        await self._file.aclose()


def _hold(connection: sqlite3.Connection, values: tuple[str, str, float, float]) -> bool:
    return connection.execute(_HOLD, values).rowcount == 1


def _let_go(connection: sqlite3.Connection, key: str, token: str) -> None:
    connection.execute(_LET_GO, (key, token))


def _expire(connection: sqlite3.Connection, now: float) -> None:
    connection.execute(_EXPIRE, (now,))
