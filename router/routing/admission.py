"""Admission: which requests are taken, which stack tries first, and what is shed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from contract.flow import USER
from router.problems import Problem
from router.routing.breakers import Breakers
from router.routing.limits import Places, TokenBuckets

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.flow import Body, FlowSpec
    from router.config import RateSettings, Settings
    from router.routing.breakers import Choice
    from router.routing.limits import Place
    from router.serving.run import RunOutcome
    from router.stack import Stack, StackName

RETRY_SECONDS = 1
"""When somebody who found no place may ask again."""

_MEANT = {
    "router": "too many streams are open",
    "flow": "too many streams of this service are open",
    "stack": "too many streams of this service are open",
}


class Admitted(msgspec.Struct, frozen=True):
    """A request that was taken: who tries first, who may stand in, and its place."""

    choice: Choice
    place: Place

    def replaced(self, ending: RunOutcome | None, by: StackName) -> None:
        """Another stack steps in; the failure counts now."""
        self._judge(ending)
        self.place.move(by)

    def over(self, ending: RunOutcome | None) -> None:
        """Nothing of it is left; `ending` is that of the stack that was tried first."""
        self._judge(ending)
        self.place.free()

    def _judge(self, ending: RunOutcome | None) -> None:
        if self.choice.trial is not None:
            self.choice.trial.ended(ending)


class Admission:
    """Admits requests, or raises the `Problem` they are shed with; `shed` counts by code."""

    def __init__(self, settings: Callable[[], Settings], monotonic: Callable[[], float]) -> None:
        self.breakers = Breakers(lambda: settings().breaker, monotonic)
        self.places = Places()
        self.shed: dict[str, int] = {}
        self._settings = settings
        self._monotonic = monotonic
        self._rate: RateSettings | None = None
        self._buckets = TokenBuckets(1, 1, 0)

    def check(self, flow: str) -> None:
        """Raise `Problem` 503 where a flow has no place left, before its request is read."""
        settings = self._settings()
        full = self.places.full(settings.limits, flow, settings.flows[flow].max_streams)
        if full is not None:
            raise self._overloaded(_MEANT[full])

    def knock(self, spec: FlowSpec, body: Body, session: str = "") -> None:
        """Raise `Problem` 429 or 503 where a request need not be looked at any further."""
        self.check(spec.name)
        self._throttle(spec, body, session, self._settings())

    def admit(self, flow: str, assigned: Stack, stand_in: Stack | None) -> Admitted:
        """Take a request, with its place; raises `Problem` 503."""
        self.check(flow)
        choice = self._choose(flow, assigned, stand_in)
        stack, limits = choice.first.name, self._settings().limits
        # Who is served by another stack than its own is not refused for that one's want of places.
        if choice.instead is None and self.places.stack_full(limits, stack):
            if choice.trial is not None:
                choice.trial.ended(None)
            raise self._overloaded(_MEANT["stack"])
        return Admitted(choice, self.places.take(flow, stack))

    def _throttle(self, spec: FlowSpec, body: Body, session: str, settings: Settings) -> None:
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
            raise self.turn_away(Problem(429, "rate_limited", why, retry_after=math.ceil(wait)))

    def _choose(self, flow: str, assigned: Stack, stand_in: Stack | None) -> Choice:
        try:
            return self.breakers.choose(flow, self._settings().flows[flow], assigned, stand_in)
        except Problem as problem:
            raise self.turn_away(problem) from None

    def _overloaded(self, why: str) -> Problem:
        return self.turn_away(Problem(503, "overloaded", why, retry_after=RETRY_SECONDS))

    def turn_away(self, problem: Problem) -> Problem:
        """Count a problem a request is shed with, and give it."""
        self.shed[problem.code] = self.shed.get(problem.code, 0) + 1
        return problem
