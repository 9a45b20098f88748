"""Locks inside this process: the default where one process serves, and the fake in tests."""

from __future__ import annotations


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
