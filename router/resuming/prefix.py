"""The prefix: what a client has had of one stream, and what of another still goes out, sans I/O.

Frames need not be equal: texts are compared, wherever they are cut. Events without text go out
once, told apart by what sort of thing they say.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from contract.errors import CutoverError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.resuming.wording import Said, Track, Units, Worded, Wording


class PrefixDiffers(CutoverError):
    """A stream cannot go on behind what the client has had; `track` is None where all has ended."""

    def __init__(self, track: Track | None) -> None:
        super().__init__(f"the {track or 'stream'!r} is not the one the client has had")
        self.track = track


class Prefix:
    """Takes a successor's frames one by one and gives those that go to the client.

    `had` are the frames the client has had.
    """

    def __init__(self, wording: Wording, had: Iterable[bytes]) -> None:
        self._wording = wording
        self._had: dict[Track, Units] = {}
        self._reached: dict[Track, int] = {}
        self._silent: Counter[tuple[str, ...]] = Counter()
        self._spoken: set[tuple[str, ...] | str] = set()
        self._met: Counter[tuple[str, ...]] = Counter()
        self._sound = True
        self._goes_on = False
        for frame in had:
            worded = wording.read(frame)
            if worded is not None:
                self._keep(worded)

    @property
    def speaks(self) -> bool:
        """Whether the client has had any text."""
        return any(self._had.values())

    def feed(self, frame: bytes) -> bytes | None:
        """Give what of a frame goes to the client: all, a part, or nothing.

        Raises `PrefixDiffers` where it cannot go on from what the client has had.
        """
        if self._goes_on:
            return frame
        if not self._sound:
            raise PrefixDiffers(None)
        worded = self._wording.read(frame)
        if worded is None:
            return None
        if worded.name in self._wording.dialect.failures:
            self._goes_on = True  # that it fails is news wherever it says so
            return frame
        rests = [self._rest(said) for said in worded.said]
        if not self._is_new(worded, rests):
            return None
        self._goes_on = not self._behind
        if rests == [said.units for said in worded.said]:
            return frame
        return self._wording.rewritten(frame, worded, rests)

    def _keep(self, worded: Worded) -> None:
        """Note an event the client has had."""
        dialect = self._wording.dialect
        ended = worded.name in dialect.failures | dialect.terminal
        # Of calls that were cut elsewhere nobody could tell which piece belongs to which.
        self._sound = self._sound and not ended and not worded.calls
        for said in worded.said:
            had = self._had.get(said.track, b"")
            if said.place.growth == "delta":
                self._had[said.track] = had + said.units
            else:
                self._sound = self._sound and said.units.startswith(had)
                self._had[said.track] = said.units
        self._silent[worded.kind] += not worded.said
        self._spoken |= {worded.kind, worded.rest}

    def _rest(self, said: Said) -> Units:
        """Give what of a text is to be sent, for a cumulative one with what has been sent."""
        had, units = self._had.get(said.track, b""), said.units
        if said.place.growth == "delta":
            start = self._reached.get(said.track, 0)
            overlap = had[start : start + len(units)]
            self._reached[said.track] = start + len(units)
            if not units.startswith(overlap):
                raise PrefixDiffers(said.track)
            return units[len(overlap) :]
        self._reached[said.track] = len(units)
        if not (units.startswith(had) or had.startswith(units)):
            raise PrefixDiffers(said.track)
        return max(units, had, key=len)

    @property
    def _behind(self) -> bool:
        """Whether some text of the client's has not been said again yet."""
        return any(self._reached.get(track, 0) < len(had) for track, had in self._had.items())

    def _is_new(self, worded: Worded, rests: list[Units]) -> bool:
        """Whether an event says anything the client has not had."""
        if any(map(self._is_more, worded.said, rests)):
            return True
        self._met[worded.kind] += not worded.said
        if self._behind:
            if worded.name in self._wording.dialect.terminal:
                raise PrefixDiffers(None)
            return False
        if not worded.said:
            return self._met[worded.kind] > self._silent[worded.kind]
        cumulative = any(said.place.growth == "cumulative" for said in worded.said)
        return (worded.rest if cumulative else worded.kind) not in self._spoken

    def _is_more(self, said: Said, rest: Units) -> bool:
        return (
            bool(rest) if said.place.growth == "delta" else rest != self._had.get(said.track, b"")
        )
