"""What a breaker tells other routers, and what it makes of what they tell. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from effects.stores import BreakerNote, NoteUpdate

if TYPE_CHECKING:
    from effects.stores import BreakerPhase
    from router.routing.breakers import Breaker

LEAST_CLAIM = 5.0
"""Seconds for which a claim to probe holds at least: longer than news are under way."""
GRACE = 2.0
"""Seconds the last one to probe leaves to others after its claim has ended."""


@dataclass(frozen=True, slots=True)
class _Sent:
    post: NoteUpdate
    era: int


class BreakerNews:
    """The view one router has of the board's note on one breaker.

    What is due follows from how breaker and note differ, so that nothing is lost with a message:
    it is due until it is heard. `me` is unique among routers. Whose note it is says its mark.
    """

    def __init__(self, key: str, me: str) -> None:
        self._key = key
        self._me = f"{me}:"
        self._count = 0
        self._note: BreakerNote | None = None
        self._until = 0.0
        self._era = 0
        self._sent: _Sent | None = None
        self._force = False

    def reset(self) -> None:
        """It was closed by hand: that holds whatever the board says."""
        self._force, self._sent = True, None

    def replaced(self) -> None:
        """Another breaker takes the place, as after an edit; it has nothing to tell yet."""
        self._era, self._sent, self._force = 0, None, False

    def due(self, breaker: Breaker, now: float) -> NoteUpdate | None:
        """Give what is to be told now; the same again until it is heard."""
        if self._sent is None and (note := self._news(breaker, now)) is not None:
            expected = None if self._force else self._note.mark if self._note else ""
            self._sent = _Sent(NoteUpdate(self._key, note, expected), breaker.era)
        return self._sent.post if self._sent else None

    def hear(self, note: BreakerNote | None, breaker: Breaker, asked: float, now: float) -> bool:
        """Take what the board says of it, asked at `asked`; gives whether another opened it.

        Whatever was due has reached the board by then, and was taken or not.
        """
        sent, self._sent = self._sent, None
        if note is None:
            self._note = None  # it has forgotten: an open breaker is told anew
            return False
        if sent is not None and note.mark == sent.post.note.mark:
            self._heard_own(note, sent, breaker, asked)
            return False
        if self._note is not None and note.mark == self._note.mark:
            return False
        if self._force:
            self._note = note  # somebody was faster: what was done by hand comes after it
            return False
        return self._adopt(note, breaker, now)

    def _news(self, breaker: Breaker, now: float) -> BreakerNote | None:
        if self._force or breaker.era != self._era:
            return self._told(breaker, now)
        if breaker.closed:
            return None
        if self._note is None:
            return self._told(breaker, now)
        return self._claim(self._note, breaker, now)

    def _told(self, breaker: Breaker, now: float) -> BreakerNote:
        """Tell how it is."""
        if breaker.closed:
            return self._make("closed")
        return self._make("open", breaker.wait(now), breaker.well)

    def _claim(self, note: BreakerNote, breaker: Breaker, now: float) -> BreakerNote | None:
        """Ask for leave to probe, or to go on with it."""
        seconds = max(breaker.rules.open_seconds, LEAST_CLAIM)
        left = self._until - now
        if note.phase == "probing" and self._mine(note):
            goes_on = breaker.well > note.well or (breaker.running and left <= seconds / 2)
            if goes_on or (breaker.wished and left <= -GRACE):
                return self._make("probing", seconds, breaker.well)
        elif breaker.wished and left <= 0:
            return self._make("probing", seconds, breaker.well)
        return None

    def _make(self, phase: BreakerPhase, left: float = 0.0, well: int = 0) -> BreakerNote:
        self._count += 1
        return BreakerNote(f"{self._me}{self._count}", phase, left, well)

    def _mine(self, note: BreakerNote) -> bool:
        return note.mark.startswith(self._me)

    def _heard_own(self, note: BreakerNote, sent: _Sent, breaker: Breaker, asked: float) -> None:
        """It is up; what has happened to the breaker since is still to be told."""
        self._force = False
        self._note, self._until, self._era = note, asked + note.left, sent.era
        if note.phase == "probing" and breaker.era == sent.era:
            breaker.claim(self._until)

    def _adopt(self, note: BreakerNote, breaker: Breaker, now: float) -> bool:
        """Do as another router does; a time that is not ours ends late rather than early."""
        opened = breaker.closed and note.phase != "closed"
        self._note, self._until = note, now + note.left
        if note.phase == "closed":
            breaker.reset()
        else:
            breaker.hear_open(self._until, note.well)
        self._era = breaker.era
        return opened
