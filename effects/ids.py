"""Fresh identifiers: random ones, and predictable ones for tests."""

from __future__ import annotations

from itertools import count
from uuid import uuid4


class RandomIds:
    """Unique identifiers: 32 hexadecimal digits, 122 random bits."""

    async def new(self, site: str) -> str:
        """Make an identifier."""
        return uuid4().hex


class CountingIds:
    """Identifiers in a row: `id-1`, `id-2` and so on."""

    def __init__(self, prefix: str = "id") -> None:
        self._prefix = prefix
        self._numbers = count(1)

    async def new(self, site: str) -> str:
        """Make the next identifier."""
        return f"{self._prefix}-{next(self._numbers)}"
