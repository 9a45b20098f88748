"""The circuit breakers of a router, one per flow and stack, and which stack is tried first."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from uuid import uuid4

import msgspec

from effects.circuit_breaker import Permit, Result, State
from effects.stores import BreakerNote, NoteUpdate
from router.config import BreakerSettings, FlowSettings
from router.problems import Problem
from router.routing.shared_breaker import BreakerSync, StackBreaker
from router.stack import RunOutcome, StackName

_STACKS: Mapping[str, StackName] = {"legacy": "legacy", "graph": "graph"}

log = logging.getLogger(__name__)


class Attempt:
    """One try of a stack by a request that is served; its first result counts."""

    def __init__(
        self, breakers: Breakers, name: str, breaker: StackBreaker, permit: Permit
    ) -> None:
        self._breakers = breakers
        self._name = name
        self._breaker = breaker
        self._permit: Permit | None = permit

    def record(self, outcome: RunOutcome | None) -> None:
        """Record how it ended; only the stack's own failures count against it."""
        permit, self._permit = self._permit, None
        if permit is None:
            return
        now = self._breakers.monotonic()
        state = self._breaker.record(permit, result_of(outcome), now)
        if state is not None:
            log.warning("the breaker of %s is %s", self._name, state)
            self._breakers.on_change()


class Choice(msgspec.Struct, frozen=True):
    """Which stack is tried first, and which may take over."""

    primary: StackName
    fallback: StackName | None
    attempt: Attempt | None


class Breakers:
    """Made as they are needed; changed settings begin with new ones.

    `alone`, as it is until the shared state answers, a router probes without a claim; `on_change`
    is called when other routers are to be told.
    """

    def __init__(
        self, settings: Callable[[], BreakerSettings], monotonic: Callable[[], float]
    ) -> None:
        self.alone = True
        self.on_change: Callable[[], None] = _ignore
        self.monotonic = monotonic
        self._me = uuid4().hex
        self._settings = settings
        self._breakers: dict[tuple[str, StackName], tuple[StackBreaker, BreakerSync]] = {}

    def choose(
        self, flow: str, settings: FlowSettings, assigned: StackName, fallback: StackName | None
    ) -> Choice:
        """Return which stack is tried first; raises `Problem` 503 where none may be."""
        if not self._settings().enabled:
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
        return self._of(flow, stack)[0]

    def reset(self, flow: str, stack: StackName) -> State:
        """Close a breaker by hand, here and wherever it is shared; returns the state it was in."""
        breaker, sync = self._of(flow, stack)
        before = breaker.circuit.state(self.monotonic())
        breaker.reset()
        sync.reset()
        self.on_change()
        return before

    def due(self) -> list[NoteUpdate]:
        """Return what other routers are to be told."""
        if not self._settings().enabled:
            return []
        now = self.monotonic()
        current = [self._of(*which) for which in tuple(self._breakers)]
        posts = [sync.due(breaker, now) for breaker, sync in current]
        return [post for post in posts if post is not None]

    def hear(
        self, notes: Mapping[str, BreakerNote], flows: Collection[str], requested: float
    ) -> None:
        """Take what other routers report of these flows; `requested` is when it was asked for."""
        if not self._settings().enabled:
            return
        named = {one for key in notes if (one := _which(key, flows))}
        for which in {*self._breakers, *named}:
            breaker, sync = self._of(*which)
            note = notes.get(_key(*which))
            if sync.hear(note, breaker, requested, self.monotonic()):
                log.warning("the breaker of %s on %s is open, as another router reports", *which)

    def states(self) -> Iterator[tuple[str, StackName, State]]:
        """Yield the state of every breaker there is."""
        now = self.monotonic()
        for flow, stack in sorted(self._breakers):
            yield flow, stack, self.of(flow, stack).circuit.state(now)

    def _attempt(self, flow: str, stack: StackName) -> Attempt | None:
        breaker = self.of(flow, stack)
        wanted = breaker.wanted
        permit = breaker.permit(self.monotonic(), alone=self.alone)
        if permit is not None:
            return Attempt(self, f"{flow} on {stack}", breaker, permit)
        if breaker.wanted and not wanted:
            self.on_change()
        return None

    def _of(self, flow: str, stack: StackName) -> tuple[StackBreaker, BreakerSync]:
        settings = self._settings()
        found = self._breakers.get((flow, stack))
        if found is None:
            found = StackBreaker(settings), BreakerSync(_key(flow, stack), self._me)
            self._breakers[flow, stack] = found
        elif found[0].settings is not settings and found[0].settings != settings:
            found = StackBreaker(settings), found[1]
            found[1].replaced()
            self._breakers[flow, stack] = found
        return found


def result_of(outcome: RunOutcome | None) -> Result:
    """Return what the outcome of a run says of its stack."""
    if outcome is None or outcome.kind == "cancelled" or outcome.blame == "world":
        return "ignored"
    return "failure" if outcome.blame == "stack" else "success"


def _key(flow: str, stack: StackName) -> str:
    return f"{stack}:{flow}"


def _which(key: str, flows: Collection[str]) -> tuple[str, StackName] | None:
    """Return which breaker a key names; None where this router has no such flow."""
    stack, _, flow = key.partition(":")
    name = _STACKS.get(stack)
    return (flow, name) if name is not None and flow in flows else None


def _ignore() -> None:
    return
