"""Pace: a stack's frames wait for a client that reads slowly, and the loop for no stack."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from effects.tape import Signal

if TYPE_CHECKING:
    from effects.run import Run

AT_A_TIME = 32
"""Frames after which a stack lets others have their turn, whatever it awaits itself."""


class Pace:
    """How far a drive may run ahead of whoever takes its frames.

    `most` is in bytes, None where nobody takes them one by one. The tape goes on meanwhile, and
    so does whoever reads it: only the frames of this one drive wait.
    """

    __slots__ = ("_most", "_run", "_since", "_taken", "ahead", "waiting")

    def __init__(self, run: Run, most: int | None) -> None:
        self.ahead = 0
        self.waiting = False
        self._most = most
        self._run = run
        self._since = 0
        self._taken = Signal()

    def made(self, size: int) -> None:
        """Count a frame that was produced."""
        self.ahead += size
        self._since += 1

    def took(self, size: int) -> None:
        """Count a frame that was taken."""
        self.ahead -= size
        self._taken.wake()

    @property
    def due(self) -> bool:
        """Whether `keep` has something to do."""
        return self._since >= AT_A_TIME or self._too_far

    async def keep(self) -> None:
        """Let others have their turn, and wait while too much has not been taken."""
        if self._too_far:
            await self._wait()
        else:
            await asyncio.sleep(0)
        self._since = 0

    @property
    def _too_far(self) -> bool:
        return self._most is not None and self.ahead > self._most

    async def _wait(self) -> None:
        self.waiting = True
        self._run.waiting += 1  # whoever reads slowly: the stack owes nothing meanwhile
        try:
            while self._too_far:
                await self._taken.wait()
        finally:
            self.waiting = False
            self._run.waiting -= 1
            self._run.touch()
