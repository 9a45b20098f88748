"""One breaker of a flow on a stack, and what routers that share their state know of it. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from effects.circuit_breaker import BreakerPolicy, CircuitBreaker, Permit, Result, State
from effects.stores import BreakerNote, BreakerPhase, NoteUpdate
from router.config import BreakerSettings

LEAST_CLAIM_SECONDS: Final = 5.0
"""A claim to probe holds at least so long: longer than a report is under way."""
YIELD_SECONDS: Final = 2.0
"""The router that probed last leaves the next claim to others for so long."""


class StackBreaker:
    """The breaker of a flow on a stack, which routers that share their state probe one at a time.

    `wanted` is whether a request could have probed but for that; `reported` whether another router
    opened it.
    """

    def __init__(self, settings: BreakerSettings) -> None:
        self.settings = settings
        self.circuit = CircuitBreaker(
            BreakerPolicy(
                window=settings.window_seconds,
                calls=settings.least_requests,
                ratio=settings.failure_ratio,
                rest=settings.open_seconds,
                probes=settings.probes,
            )
        )
        self.wanted = self.reported = False
        self._claim = (0, -math.inf)

    def permit(self, now: float, *, alone: bool = True) -> Permit | None:
        """Permit a try; unless the router is `alone`, a probe needs a claim."""
        circuit = self.circuit
        if circuit.closed:
            return circuit.permit(now)
        if not alone and circuit.wait(now) == 0 and not self.claimed(now):
            self.wanted = True
            return None
        permit = circuit.permit(now)
        self.wanted = self.wanted and permit is None
        return permit

    def record(self, permit: Permit, result: Result, now: float) -> State | None:
        """Record the result of a try; returns the new state if it changed."""
        state = self.circuit.record(permit, result, now)
        if state is not None:
            self.reported = False
            self.wanted = self.wanted and state != "closed"
        return state

    def reset(self) -> None:
        """Close it and forget everything, results still to come included."""
        self.circuit.reset()
        self.wanted = self.reported = False

    def open_until(self, until: float, successes: int) -> None:
        """Open as another router reports it, with as many probes already successful."""
        self.reported = self.reported or self.circuit.closed
        self.circuit.open_until(until, successes)

    def claimed(self, now: float) -> bool:
        """Whether this router, and no other, probes."""
        era, until = self._claim
        return era == self.circuit.era and now < until

    def claim(self, until: float) -> None:
        """This router, and no other, probes until then, or until the breaker's state changes."""
        self._claim = (self.circuit.era, until)


@dataclass(frozen=True, slots=True)
class _Sent:
    update: NoteUpdate
    era: int


class BreakerSync:
    """What one router knows of the shared note on one breaker.

    What is due follows from how breaker and note differ, so a lost update loses nothing: it is due
    until it is confirmed. `me` is unique among routers, and begins the marks of its own notes.
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
        """The breaker was closed by hand: that holds whatever the shared note says."""
        self._force, self._sent = True, None

    def replaced(self) -> None:
        """A new breaker takes the place, as after an edit; it has nothing to report yet."""
        self._era, self._sent, self._force = 0, None, False

    def due(self, breaker: StackBreaker, now: float) -> NoteUpdate | None:
        """Return what is to be reported now; the same again until it is confirmed."""
        if self._sent is None and (note := self._news(breaker, now)) is not None:
            expected = None if self._force else self._note.mark if self._note else ""
            update = NoteUpdate(self._key, note, expected)
            self._sent = _Sent(update, breaker.circuit.era)
        return self._sent.update if self._sent else None

    def hear(
        self, note: BreakerNote | None, breaker: StackBreaker, requested: float, now: float
    ) -> bool:
        """Take the shared note, requested at `requested`; returns whether another router opened it.

        Whatever was due has reached the shared state by then, and was taken or not.
        """
        sent, self._sent = self._sent, None
        if note is None:
            self._note = None  # the store has forgotten it: an open breaker is reported anew
            return False
        if sent is not None and note.mark == sent.update.note.mark:
            self._confirm(note, sent, breaker, requested)
            return False
        if self._note is not None and note.mark == self._note.mark:
            return False
        if self._force:
            self._note = note  # another router was faster: what was done by hand comes after it
            return False
        return self._adopt(note, breaker, now)

    def _news(self, breaker: StackBreaker, now: float) -> BreakerNote | None:
        circuit = breaker.circuit
        if self._force or circuit.era != self._era or (self._note is None and not circuit.closed):
            if circuit.closed:
                return self._make("closed")
            return self._make("open", circuit.wait(now), circuit.successes)
        if self._note is None or circuit.closed:
            return None
        return self._claim(self._note, breaker, now)

    def _claim(self, note: BreakerNote, breaker: StackBreaker, now: float) -> BreakerNote | None:
        """Claim to probe, or to go on probing."""
        circuit = breaker.circuit
        seconds = max(circuit.policy.rest, LEAST_CLAIM_SECONDS)
        left = self._until - now
        if note.phase == "probing" and note.mark.startswith(self._me):
            goes_on = circuit.successes > note.well or (circuit.running and left <= seconds / 2)
            wanted = goes_on or (breaker.wanted and left <= -YIELD_SECONDS)
        else:
            wanted = breaker.wanted and left <= 0
        return self._make("probing", seconds, circuit.successes) if wanted else None

    def _make(self, phase: BreakerPhase, left: float = 0.0, successes: int = 0) -> BreakerNote:
        self._count += 1
        return BreakerNote(f"{self._me}{self._count}", phase, left, successes)

    def _confirm(
        self, note: BreakerNote, sent: _Sent, breaker: StackBreaker, requested: float
    ) -> None:
        """The own report is stored; what has happened to the breaker since is still due."""
        self._force = False
        self._note, self._until, self._era = note, requested + note.left, sent.era
        if note.phase == "probing" and breaker.circuit.era == sent.era:
            breaker.claim(self._until)

    def _adopt(self, note: BreakerNote, breaker: StackBreaker, now: float) -> bool:
        """Follow another router's report; its time ends late rather than early."""
        opened = breaker.circuit.closed and note.phase != "closed"
        self._note, self._until = note, now + note.left
        if note.phase == "closed":
            breaker.reset()
        else:
            breaker.open_until(self._until, note.well)
        self._era = breaker.circuit.era
        return opened
