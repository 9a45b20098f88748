"""The frames of a run: how far it may be ahead of its reader, how many there may be, how fast."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from contract.errors import CutoverError
from contract.flow import Event
from effects.tape import Signal, TapeSession

TURN_FRAMES: Final = 32
"""Frames after which a run yields to the event loop, whatever its stack awaits."""
UNPROMPTED_LIMIT: Final = 4 << 20
"""Bytes of frames a stack may produce between two results from the tape before it has run away."""
REPEATED_UNPROMPTED: Final = 256
"""Repeated frames of a stack between two results from the tape: more is a loop."""
REPEATED_A_SECOND: Final = 1_000
"""Repeated frames in a second of a stack that plays no tape: no model writes as fast."""
BURST_FRAMES: Final = 16_384
"""Frames that may come at once, as those of a long answer that was there already do."""
FRAMES_A_SECOND: Final = 2_000
"""Frames allowed beyond a burst, for each second of a run."""
_RECENT_FRAMES: Final = 8
_CANDIDATE_RATIO: Final = 4
"""How much more than was served a candidate may produce; past that it has run away."""
_SECOND_US: Final = 1_000_000


class Frame(msgspec.Struct, frozen=True, gc=False):
    """An event, its bytes on the wire, and the stamp at which it was produced."""

    at: int
    data: bytes
    event: Event


class RanAway(CutoverError):
    """A stack produces frames without end; `size` counts bytes or frames, as `what` says."""

    def __init__(self, size: int, why: str, what: str = "bytes of frames") -> None:
        super().__init__(f"{size} {what} {why}")


def candidate_limit(served: int, least: int) -> int:
    """Return how many bytes of frames a candidate may produce where so many were served."""
    return max(_CANDIDATE_RATIO * served, least)


class FrameFlood:
    """Detects a stack in a loop by its frames: they repeat, or come faster than any model writes.

    `start` is the position of the first frame of the stretch in which repeated frames are counted:
    of those since the last result from the tape where it plays one, else of one second. `whole`
    frames that repeat are a loop; pieces of plain text are single letters, which do.
    """

    __slots__ = ("_allowed", "_began", "_in_stretch", "_recent", "repeated", "start")

    def __init__(self, *, in_stretch: bool, whole: bool = True) -> None:
        self.start = self.repeated = 0
        self._in_stretch = in_stretch
        self._allowed = REPEATED_UNPROMPTED if in_stretch else REPEATED_A_SECOND
        if not whole:
            self._allowed = sys.maxsize
        self._recent: deque[bytes] = deque(maxlen=_RECENT_FRAMES)
        self._began = 0

    def add(self, frames: Sequence[Frame], position: int, age: int, *, prompted: bool) -> None:
        """Take frames, the first of them at `position`; raises `RanAway`.

        `age` is the time since the run began in microseconds, `prompted` whether the tape
        has given the stack a result since its last frame.
        """
        if prompted if self._in_stretch else age >= self._began + _SECOND_US:
            self.start, self.repeated, self._began = position, 0, age
        recent = self._recent
        for frame in frames:
            if frame.data in recent:
                self.repeated += 1
            else:
                recent.append(frame.data)
        if self.repeated > self._allowed:
            raise RanAway(self.repeated, "in a row repeat others", "frames")
        if self._in_stretch:
            position, age = position - self.start, age - self._began
        count = position + len(frames)
        if count > BURST_FRAMES and count > BURST_FRAMES + FRAMES_A_SECOND * age / _SECOND_US:
            raise RanAway(count, f"came within {age // 1_000} ms", "frames")

    def without_repeated(self, sent: Sequence[bytes]) -> list[bytes]:
        """Return the frames a client has, those left out that the stretch repeated."""
        kept, recent = list(sent[: self.start]), deque[bytes](maxlen=_RECENT_FRAMES)
        for data in sent[self.start :]:
            if data not in recent:
                recent.append(data)
                kept.append(data)
        return kept


class Backpressure:
    """How many bytes of frames a run may produce ahead of its reader, and in all.

    `unsent_limit` is None where frames are not taken one by one, as a shadow's. The tape goes on
    recording meanwhile, and so do its other readers. `total_limit` returns how many bytes may be
    produced in all; it is called again when its last answer is used up. `due` is whether the run
    must `yield_turn` after the frame it has just added.
    """

    __slots__ = (
        "_allowed",
        "_since",
        "_skipped",
        "_taken",
        "_tape_session",
        "_total_limit",
        "_unsent_limit",
        "due",
        "produced",
        "unsent",
        "waiting",
    )

    def __init__(
        self,
        session: TapeSession,
        unsent_limit: int | None,
        total_limit: Callable[[], int] | None,
    ) -> None:
        self.produced = self.unsent = 0
        self.waiting = self.due = False
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
        self.due = self._since >= TURN_FRAMES or self.unsent > self._unsent_limit
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

    async def yield_turn(self) -> None:
        """Yield to the event loop, and wait while too much has not been taken."""
        self._since, self.due = 0, False
        if not self.exceeded:
            await self._tape_session.give_way()
            return
        self.waiting = True
        self._tape_session.waiting += 1  # for the client: the stack is not stalled meanwhile
        try:
            while self.exceeded:
                await self._taken.wait()
        finally:
            self.waiting = False
            self._tape_session.waiting -= 1
            self._tape_session.touch()
