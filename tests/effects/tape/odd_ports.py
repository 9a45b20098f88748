"""Live ports that are slow, break, or look around: worlds the tape must stand."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, NoReturn

from contract.model import Chunk
from effects.model import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WHO = ContextVar("WHO", default="nobody")


class NosyModel(ScriptedModel):
    """A model that says whose context it runs in."""

    async def stream(self, *_: object) -> AsyncIterator[Chunk]:
        """Say it."""
        yield Chunk(text=WHO.get())


class SlowStore:
    """A store whose writes take so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.stored = 0
        self._seconds = seconds

    async def put(self, *_: object) -> bool:
        """Take that time, then store."""
        await asyncio.sleep(self._seconds)
        self.stored += 1
        return True


class Raising:
    """A port whose operations raise what they are given."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def put(self, *_: object) -> bool:
        """Raise it."""
        raise self._error

    async def new(self, *_: object) -> str:
        """Raise it."""
        raise self._error

    async def answer(self, *_: object) -> NoReturn:
        """Raise it."""
        raise self._error

    async def release(self, *_: object) -> None:
        """Raise it."""
        raise self._error

    async def acquire(self, *_: object) -> bool:
        """Give the lock."""
        return True


class SlowLocks(Raising):
    """Locks that take a second to get."""

    def __init__(self) -> None:
        super().__init__(ConnectionError())

    async def acquire(self, *_: object) -> bool:
        """Give the lock, late."""
        await asyncio.sleep(1.0)
        return True

    async def release(self, *_: object) -> None:
        """Let go of it."""
