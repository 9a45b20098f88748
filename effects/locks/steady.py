"""Locks that go on while whoever keeps them for all processes is away."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from contract.errors import EffectFailed
from effects.locks.leases import LeasedLocks
from effects.locks.process import ProcessLocks
from effects.rest import Rest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from effects.locks.leases import Leases

MEANWHILE = "messages are locked within each process alone"


class _Told:
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


class SteadyLocks:
    """Shared locks, and locks of this process below them; each object is one owner.

    A lock is always held in the process, and shared where that can be done. What is taken while
    the keeper of the leases is away is shared when it is back: at the next renewal.
    """

    def __init__(self, shared: LeasedLocks, own: ProcessLocks, keeper: Rest) -> None:
        self._shared = shared
        self._own = own
        self._keeper = keeper

    @classmethod
    def over(cls, leases: Leases, monotonic: Callable[[], float]) -> SteadyLocks:
        """Make the first owner, which closes the leases in the end."""
        keeper = Rest("locks", MEANWHILE, monotonic)
        return cls(LeasedLocks(_Told(leases, keeper)), ProcessLocks(), keeper)

    @property
    def fault(self) -> str | None:
        """What is wrong now, and what holds meanwhile."""
        return self._keeper.fault

    def for_exchange(self) -> SteadyLocks:
        """Make another owner of the same locks."""
        shared, own = self._shared.for_exchange(), self._own.for_exchange()
        return SteadyLocks(shared, own, self._keeper)

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
