"""Leases in memory: the fake in tests, whose keeper can be away or forget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.errors import EffectFailed, Fault

if TYPE_CHECKING:
    from collections.abc import Callable


class MemoryLeases:
    """Leases in a dictionary: key to token and end, in seconds of `clock`.

    While `away` every call fails as it would with a keeper out of reach.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.held: dict[str, tuple[str, float]] = {}
        self.away = False
        self.asked = 0
        self._clock = clock

    async def hold(self, key: str, token: str, ms: int) -> bool:
        """Take a key nobody holds, or keep an own one, for so many milliseconds from now."""
        self._answer()
        now = self._clock()
        holder, ends = self.held.get(key, (token, now))
        if holder != token and ends > now:
            return False
        self.held[key] = (token, now + ms / 1000)
        return True

    async def let_go(self, key: str, token: str) -> None:
        """Give a key back, if this token holds it."""
        self._answer()
        if self.held.get(key, ("", 0.0))[0] == token:
            del self.held[key]

    async def aclose(self) -> None:
        """Nothing is open."""

    def _answer(self) -> None:
        self.asked += 1
        if self.away:
            raise EffectFailed(Fault("lock_unavailable", retryable=True))
