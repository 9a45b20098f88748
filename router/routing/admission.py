"""Admission: which requests are taken, which stack tries first, and what is shed."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from contract.flow import USER, Body, FlowSpec
from router.config import RateSettings, Settings
from router.problems import Problem
from router.routing.breakers import Breakers, Choice
from router.routing.limits import OpenStreams, StreamSlot, TokenBuckets
from router.stack import RunOutcome, StackName

RETRY_SECONDS = 1
"""When a client whose request was shed may try again."""

_FULL = {
    "router": "too many streams are open",
    "flow": "too many streams of this service are open",
    "stack": "too many streams of this service are open",
}


class Admitted(msgspec.Struct, frozen=True):
    """A request that was taken: which stack tries first, which may take over, and its slot."""

    choice: Choice
    slot: StreamSlot

    def fell_back(self, outcome: RunOutcome | None, stack: StackName) -> None:
        """Another stack serves now; the outcome of the first one counts at once."""
        self._record(outcome)
        self.slot.move(stack)

    def release(self, outcome: RunOutcome | None) -> None:
        """Release the slot; `outcome` is that of the stack that was tried first."""
        self._record(outcome)
        self.slot.release()

    def _record(self, outcome: RunOutcome | None) -> None:
        if self.choice.attempt is not None:
            self.choice.attempt.record(outcome)


class Admission:
    """Takes requests, or raises the `Problem` they are shed with; `shed` counts by code."""

    def __init__(self, settings: Callable[[], Settings], monotonic: Callable[[], float]) -> None:
        self.breakers = Breakers(lambda: settings().breaker, monotonic)
        self.streams = OpenStreams()
        self.shed: dict[str, int] = {}
        self._settings = settings
        self._monotonic = monotonic
        self._rate: RateSettings | None = None
        self._buckets = TokenBuckets(1, 1, 0)

    def check_slot(self, flow: str) -> None:
        """Raise `Problem` 503 where no stream of a flow may open, before its request is read."""
        settings = self._settings()
        full = self.streams.full(settings.limits, flow, settings.flows[flow].max_streams)
        if full is not None:
            raise self._overloaded(full)

    def check(self, spec: FlowSpec, body: Body, session: str = "") -> None:
        """Raise `Problem` 429 or 503 where a request is shed before it is assigned."""
        self.check_slot(spec.name)
        settings = self._settings()
        rate = settings.rate
        if not rate.per_minute:
            return
        if self._rate is not rate and self._rate != rate:
            self._buckets = TokenBuckets(rate.per_minute / 60, rate.burst, rate.keys)
        self._rate = rate
        wanted = USER if rate.by == "user" else settings.flows[spec.name].route_key
        wait = self._buckets.take(spec.route_key(body, wanted, session), self._monotonic())
        if wait:
            why = f"at most {rate.per_minute:g} requests a minute are taken"
            raise self.count_shed(Problem(429, "rate_limited", why, retry_after=math.ceil(wait)))

    def admit(self, flow: str, assigned: StackName, fallback: StackName | None) -> Admitted:
        """Take a request and a slot for it; raises `Problem` 503."""
        self.check_slot(flow)
        settings = self._settings()
        try:
            choice = self.breakers.choose(flow, settings.flows[flow], assigned, fallback)
        except Problem as problem:
            raise self.count_shed(problem) from None
        stack = choice.primary
        # A request that the assigned stack cannot serve is not refused for a full fallback.
        if stack == assigned and self.streams.stack_full(settings.limits, stack):
            if choice.attempt is not None:
                choice.attempt.record(None)
            full = "stack"
            raise self._overloaded(full)
        return Admitted(choice, self.streams.take(flow, stack))

    def count_shed(self, problem: Problem) -> Problem:
        """Count a problem that a request is shed with, and return it."""
        self.shed[problem.code] = self.shed.get(problem.code, 0) + 1
        return problem

    def _overloaded(self, full: str) -> Problem:
        problem = Problem(503, "overloaded", _FULL[full], retry_after=RETRY_SECONDS)
        return self.count_shed(problem)
