"""The circuit breakers of a router, one per flow and stack, and which stack is tried first.

Routers that share their state report to each other which breakers are open, and probe one at a
time (`BreakerSync`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import msgspec

from effects.circuit_breaker import BreakerPolicy, CircuitBreaker, Permit, Result, State
from effects.stores import BreakerNote, BreakerPhase, NoteUpdate
from router.config.schema import BreakerSettings, FlowSettings, Settings
from router.problems import Problem
from router.stack import STACKS, RunOutcome, StackName

LEAST_CLAIM_SECONDS: Final = 5.0
"""A claim to probe holds at least so long: longer than a report is under way."""
YIELD_SECONDS: Final = 2.0
"""The router that probed last leaves the next claim to others for so long."""

log = logging.getLogger(__name__)


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
        may_probe = alone or self.claimed(now)
        permit = self.circuit.permit(now, probe=may_probe)
        if permit is not None:
            self.wanted = False
        elif not may_probe and self.circuit.wait(now) == 0:
            self.wanted = True
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


class BreakerSync:
    """A breaker, and what its router knows of the shared note on it.

    What is due follows from how breaker and note differ, so a lost update loses nothing: it is due
    until it is confirmed. `me` is unique among routers, and begins the marks of its own notes.
    """

    def __init__(self, key: str, me: str, settings: BreakerSettings) -> None:
        self.breaker = StackBreaker(settings)
        self._key = key
        self._me = f"{me}:"
        self._count = 0
        self._note: BreakerNote | None = None
        self._until = 0.0
        self._era = 0
        self._sent: tuple[NoteUpdate, int] | None = None  # and the breaker's era in it
        self._force = False

    def reset(self) -> None:
        """Close the breaker by hand: that takes precedence over the shared note."""
        self.breaker.reset()
        self._force, self._sent = True, None

    def replace(self, settings: BreakerSettings) -> None:
        """Begin with a new breaker, as after an edit; it has nothing to report yet."""
        self.breaker = StackBreaker(settings)
        self._era, self._sent, self._force = 0, None, False

    def due(self, now: float) -> NoteUpdate | None:
        """Return what is to be reported now; the same again until it is confirmed."""
        if self._sent is None and (note := self._unreported(now)) is not None:
            expected = None if self._force else self._note.mark if self._note else ""
            self._sent = NoteUpdate(self._key, note, expected), self.breaker.circuit.era
        return self._sent[0] if self._sent else None

    def receive(self, note: BreakerNote | None, requested: float, now: float) -> bool:
        """Take the shared note, requested at `requested`; returns whether another router opened it.

        Whatever was due has reached the shared state by then, and was taken or not.
        """
        sent, self._sent = self._sent, None
        if note is None:
            self._note = None  # no longer stored: an open breaker is reported anew
            return False
        if sent is not None and note.mark == sent[0].note.mark:
            # The own report is stored; what has happened to the breaker since is still due.
            self._force = False
            self._note, self._until, self._era = note, requested + note.left, sent[1]
            if note.phase == "probing" and self.breaker.circuit.era == self._era:
                self.breaker.claim(self._until)
            return False
        if self._note is not None and note.mark == self._note.mark:
            return False
        if self._force:
            self._note = note  # another router was faster: the reset by hand comes after it
            return False
        return self._adopt(note, now)

    def _unreported(self, now: float) -> BreakerNote | None:
        """Return a note on what others do not know yet, or a claim to probe; None if neither."""
        circuit = self.breaker.circuit
        if self._force or circuit.era != self._era or (self._note is None and not circuit.closed):
            if circuit.closed:
                return self._make("closed")
            return self._make("open", circuit.wait(now), circuit.successes)
        if self._note is None or circuit.closed:
            return None
        return self._claim(self._note, now)

    def _claim(self, note: BreakerNote, now: float) -> BreakerNote | None:
        """Claim to probe, or to go on probing."""
        circuit, wanted = self.breaker.circuit, self.breaker.wanted
        seconds = max(circuit.policy.rest, LEAST_CLAIM_SECONDS)
        left = self._until - now
        if note.phase == "probing" and note.mark.startswith(self._me):
            goes_on = circuit.successes > note.well or (circuit.running and left <= seconds / 2)
            wanted = goes_on or (wanted and left <= -YIELD_SECONDS)
        else:
            wanted = wanted and left <= 0
        return self._make("probing", seconds, circuit.successes) if wanted else None

    def _make(self, phase: BreakerPhase, left: float = 0.0, successes: int = 0) -> BreakerNote:
        self._count += 1
        return BreakerNote(f"{self._me}{self._count}", phase, left, successes)

    def _adopt(self, note: BreakerNote, now: float) -> bool:
        """Follow another router's report; its time ends late rather than early."""
        breaker = self.breaker
        opened = breaker.circuit.closed and note.phase != "closed"
        self._note, self._until = note, now + note.left
        if note.phase == "closed":
            breaker.reset()
        else:
            breaker.open_until(self._until, note.well)
        self._era = breaker.circuit.era
        return opened


@dataclass(slots=True, eq=False)
class Attempt:
    """One try of a stack by a request that is served; its first result counts."""

    _breakers: Breakers
    _name: str
    _breaker: StackBreaker
    _permit: Permit | None

    def record(self, outcome: RunOutcome | None) -> None:
        """Record how it ended; only the stack's own failures count against it."""
        permit, self._permit = self._permit, None
        if permit is None:
            return
        result: Result = "success"
        if outcome is None or outcome.kind == "cancelled" or outcome.blame == "world":
            result = "ignored"
        elif outcome.blame == "stack":
            result = "failure"
        state = self._breaker.record(permit, result, self._breakers.monotonic())
        if state is not None:
            log.warning("the breaker of %s is %s", self._name, state)
            self._breakers.on_change()


class Choice(msgspec.Struct, frozen=True):
    """Which stack is tried first, and which may take over."""

    primary: StackName
    fallback: StackName | None
    attempt: Attempt | None


class Breakers:
    """The breakers of a router, made when first used, and anew when their settings change.

    While it is `alone`, as until the shared state answers, a router probes without a claim;
    `on_change` is called when there is something to report to other routers.
    """

    def __init__(self, settings: Callable[[], Settings], monotonic: Callable[[], float]) -> None:
        self.alone = True
        self.on_change: Callable[[], None] = lambda: None
        self.monotonic = monotonic
        self._me = uuid4().hex
        self._settings = settings
        self._breakers: dict[tuple[str, StackName], BreakerSync] = {}

    def choose(
        self, flow: str, settings: FlowSettings, assigned: StackName, fallback: StackName | None
    ) -> Choice:
        """Return which stack is tried first; raises `Problem` 503 where none may be."""
        if not self._settings().breaker.enabled:
            return Choice(assigned, fallback, None)
        attempt = self._attempt(flow, assigned)
        if attempt is not None:
            return Choice(assigned, fallback, attempt)
        if fallback is not None and (attempt := self._attempt(flow, fallback)) is not None:
            return Choice(fallback, None, attempt)
        # Legacy served before there was a router: the router never refuses what it might serve.
        if settings.when_open == "refuse" and assigned == "graph":
            seconds = self.of(flow, assigned).circuit.wait(self.monotonic())
            why = "this service fails too often right now"
            raise Problem(503, "breaker_open", why, retry_after=max(math.ceil(seconds), 1))
        return Choice(assigned, fallback, None)

    def of(self, flow: str, stack: StackName) -> StackBreaker:
        """Return the breaker of a flow on a stack."""
        return self._of(flow, stack).breaker

    def reset(self, flow: str, stack: StackName) -> State:
        """Close a breaker by hand, here and wherever it is shared; returns the state it was in."""
        sync = self._of(flow, stack)
        before = sync.breaker.circuit.state(self.monotonic())
        sync.reset()
        self.on_change()
        return before

    def due(self) -> list[NoteUpdate]:
        """Return the updates that other routers need."""
        if not self._settings().breaker.enabled:
            return []
        now = self.monotonic()
        updates = [self._of(*which).due(now) for which in tuple(self._breakers)]
        return [update for update in updates if update is not None]

    def receive(
        self, notes: Mapping[str, BreakerNote], flows: Collection[str], requested: float
    ) -> None:
        """Take the notes of other routers on these flows; `requested` is when they were read."""
        if not self._settings().breaker.enabled:
            return
        named = {one for key in notes if (one := _which(key, flows))}
        for which in {*self._breakers, *named}:
            note = notes.get(_key(*which))
            if self._of(*which).receive(note, requested, self.monotonic()):
                log.warning("the breaker of %s on %s is open, as another router reports", *which)

    def states(self) -> Iterator[tuple[str, StackName, State]]:
        """Yield the state of every breaker there is."""
        now = self.monotonic()
        for flow, stack in sorted(self._breakers):
            yield flow, stack, self.of(flow, stack).circuit.state(now)

    def _attempt(self, flow: str, stack: StackName) -> Attempt | None:
        breaker = self._of(flow, stack).breaker
        wanted = breaker.wanted
        permit = breaker.permit(self.monotonic(), alone=self.alone)
        if permit is not None:
            return Attempt(self, f"{flow} on {stack}", breaker, permit)
        if breaker.wanted and not wanted:
            self.on_change()
        return None

    def _of(self, flow: str, stack: StackName) -> BreakerSync:
        settings = self._settings().breaker
        found = self._breakers.get((flow, stack))
        if found is None:
            found = BreakerSync(_key(flow, stack), self._me, settings)
            self._breakers[flow, stack] = found
        elif found.breaker.settings is not settings and found.breaker.settings != settings:
            found.replace(settings)
        return found


def _key(flow: str, stack: StackName) -> str:
    return f"{stack}:{flow}"


def _which(key: str, flows: Collection[str]) -> tuple[str, StackName] | None:
    """Return which breaker a key names; None where this router has no such flow."""
    stack, _, flow = key.partition(":")
    name = STACKS.get(stack)
    return (flow, name) if name is not None and flow in flows else None
