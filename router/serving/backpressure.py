"""Pace: a stack waits for a client that reads slowly, gives way to others, and has to end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from contract.errors import CutoverError
from effects.tape import Signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from effects.tape import TapeSession

AT_A_TIME = 32
"""Frames after which a stack lets others have their turn, whatever it awaits itself."""


class RanAway(CutoverError):
    """A stack produces frames without end."""

    def __init__(self, size: int, why: str) -> None:
        super().__init__(f"{size} bytes of frames {why}")


class Pace:
    """How far a drive may run ahead of whoever takes its frames.

    `unsent` is in bytes, None where nobody takes them one by one. The tape goes on meanwhile, and
    so does whoever reads it: only the frames of this one drive wait. `most` tells how many bytes
    there may be in all, None where that is up to whoever takes them.
    """

    __slots__ = (
        "_allowed",
        "_most",
        "_run",
        "_since",
        "_spared",
        "_taken",
        "_unsent",
        "ahead",
        "made",
        "waiting",
    )

    def __init__(
        self, run: TapeSession, unsent: int | None = None, most: Callable[[], int] | None = None
    ) -> None:
        self.ahead = self.made = 0
        self.waiting = False
        self._unsent = sys.maxsize if unsent is None else unsent
        self._most = most
        self._allowed = sys.maxsize if most is None else 0
        self._run = run
        self._since = self._spared = 0
        self._taken = Signal()

    def make(self, size: int) -> None:
        """Count a frame that is produced; raises `RanAway`."""
        self.made += size
        self.ahead += size
        self._since += 1
        if self.made > self._allowed and self._most is not None:
            self._allowed = self._most()
            if self.made > self._allowed:
                raise RanAway(self.made, "are far more than were served")

    def spare(self, size: int) -> None:
        """Count a frame just produced as taken: it waits for nobody, and is passed over later."""
        self.ahead -= size
        self._spared += size

    def took(self, size: int) -> None:
        """Count a frame that was taken, or passed over."""
        spared = min(size, self._spared)
        self._spared -= spared
        self.ahead -= size - spared
        self._taken.wake()

    @property
    def overfull(self) -> bool:
        """Whether more waits to be taken than may."""
        return self.ahead > self._unsent

    @property
    def due(self) -> bool:
        """Whether `keep` has something to do."""
        return self._since >= AT_A_TIME or self.overfull

    async def keep(self) -> None:
        """Let others have their turn, and wait while too much has not been taken."""
        if self.overfull:
            await self._wait()
        else:
            await self._run.give_way()
        self._since = 0

    async def _wait(self) -> None:
        self.waiting = True
        self._run.waiting += 1  # whoever reads slowly: the stack owes nothing meanwhile
        try:
            while self.overfull:
                await self._taken.wait()
        finally:
            self.waiting = False
            self._run.waiting -= 1
            self._run.touch()
