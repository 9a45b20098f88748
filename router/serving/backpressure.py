"""Backpressure: a run waits for a client that reads slowly, yields to others, and must end."""

from __future__ import annotations

import sys
from collections.abc import Callable

from contract.errors import CutoverError
from effects.tape import Signal, TapeSession

TURN_FRAMES = 32
"""Frames after which a run yields to the event loop, whatever its stack awaits."""


class RanAway(CutoverError):
    """A stack produces frames without end."""

    def __init__(self, size: int, why: str) -> None:
        super().__init__(f"{size} bytes of frames {why}")


class Backpressure:
    """How many bytes of frames a run may produce ahead of its reader, and in all.

    `unsent_limit` is None where frames are not taken one by one, as a shadow's. The tape goes on
    recording meanwhile, and so do its other readers. `total_limit` returns how many bytes may be
    produced in all; it is called again when its last answer is used up.
    """

    __slots__ = (
        "_allowed",
        "_since",
        "_skipped",
        "_taken",
        "_tape_session",
        "_total_limit",
        "_unsent_limit",
        "produced",
        "unsent",
        "waiting",
    )

    def __init__(
        self,
        session: TapeSession,
        unsent_limit: int | None = None,
        total_limit: Callable[[], int] | None = None,
    ) -> None:
        self.produced = self.unsent = 0
        self.waiting = False
        self._unsent_limit = sys.maxsize if unsent_limit is None else unsent_limit
        self._total_limit = total_limit
        self._allowed = sys.maxsize if total_limit is None else 0
        self._tape_session = session
        self._since = self._skipped = 0
        self._taken = Signal()

    def add(self, size: int) -> None:
        """Count bytes that are produced; raises `RanAway`."""
        self.produced += size
        self.unsent += size
        self._since += 1
        if self.produced > self._allowed and self._total_limit is not None:
            self._allowed = self._total_limit()
            if self.produced > self._allowed:
                raise RanAway(self.produced, "are far more than were served")

    def skip(self, size: int) -> None:
        """Count bytes just produced as taken: the client has them, and `take` will come later."""
        self.unsent -= size
        self._skipped += size

    def take(self, size: int) -> None:
        """Count bytes that were taken, or passed over."""
        skipped = min(size, self._skipped)
        self._skipped -= skipped
        self.unsent -= size - skipped
        self._taken.wake()

    @property
    def exceeded(self) -> bool:
        """Whether more bytes wait to be taken than may."""
        return self.unsent > self._unsent_limit

    @property
    def due(self) -> bool:
        """Whether the run must `yield_turn` now."""
        return self._since >= TURN_FRAMES or self.unsent > self._unsent_limit

    async def yield_turn(self) -> None:
        """Yield to the event loop, and wait while too much has not been taken."""
        if self.exceeded:
            await self._wait()
        else:
            await self._tape_session.give_way()
        self._since = 0

    async def _wait(self) -> None:
        self.waiting = True
        self._tape_session.waiting += 1  # for the client: the stack is not stalled meanwhile
        try:
            while self.exceeded:
                await self._taken.wait()
        finally:
            self.waiting = False
            self._tape_session.waiting -= 1
            self._tape_session.touch()
