"""Idle connections: which is used again, and which has been idle for too long. Pure."""

from __future__ import annotations

from typing import Generic, TypeVar

Kept = TypeVar("Kept")


class Idle(Generic[Kept]):
    """What is kept for at most so many seconds; the last one given is the first one taken."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[Kept, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def give(self, one: Kept, now: float) -> None:
        """Keep one."""
        self._since[one] = now

    def take(self, now: float) -> Kept | None:
        """Give the one that was used last, if it is not too old: then all others are, too."""
        if not self._since:
            return None
        one, since = self._since.popitem()
        if now - since < self._seconds:
            return one
        self._since[one] = since
        return None

    def discard(self, one: Kept) -> None:
        """Forget one."""
        self._since.pop(one, None)

    def stale(self, now: float) -> list[Kept]:
        """Take out all that are too old."""
        old = [one for one, since in self._since.items() if now - since >= self._seconds]
        for one in old:
            del self._since[one]
        return old

    @property
    def due(self) -> float | None:
        """The moment at which the oldest will be too old; None where there is none."""
        return next((since + self._seconds for since in self._since.values()), None)
