"""Admission: which requests are taken, which stack tries first, and what is shed."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from contract.flow import USER, Body, FlowSpec
from router.config.schema import RateSettings, Settings
from router.problems import Problem
from router.routing.breakers import Breakers, Choice
from router.stack import RunOutcome, StackName

RETRY_SECONDS = 1
"""When a client whose request was shed may try again."""


@dataclass(slots=True)
class OpenStreams:
    """The streams being served: in all, by flow, and by the stack that serves them now."""

    total: int = 0
    flows: Counter[str] = field(default_factory=Counter)
    stacks: Counter[StackName] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class Admitted:
    """A request that was taken: which stack tries first, which may take over, and its slot."""

    choice: Choice
    _streams: OpenStreams
    _flow: str
    _stack: StackName
    _released: bool = False

    def fell_back(self, outcome: RunOutcome | None, stack: StackName) -> None:
        """Another stack serves now, full or not; the outcome of the first one counts at once."""
        if self.choice.attempt is not None:
            self.choice.attempt.record(outcome)
        if not self._released:
            self._streams.stacks[self._stack] -= 1
            self._streams.stacks[stack] += 1
            self._stack = stack

    def release(self, outcome: RunOutcome | None) -> None:
        """Release the slot; `outcome` is that of the stack that was tried first. Idempotent."""
        if self.choice.attempt is not None:
            self.choice.attempt.record(outcome)
        if not self._released:
            self._released = True
            self._streams.total -= 1
            self._streams.flows[self._flow] -= 1
            self._streams.stacks[self._stack] -= 1


class Admission:
    """Takes requests, or raises the `Problem` they are shed with; `shed` counts by code.

    Limits that are 0 are none.
    """

    def __init__(self, settings: Callable[[], Settings], monotonic: Callable[[], float]) -> None:
        self.breakers = Breakers(settings, monotonic)
        self.streams = OpenStreams()
        self.shed: Counter[str] = Counter()
        self._settings = settings
        self._monotonic = monotonic
        self._rate: RateSettings | None = None
        self._buckets = TokenBuckets(1, 1, 0)

    def check_slot(self, flow: str) -> None:
        """Raise `Problem` 503 where no stream of a flow may open, before its request is read."""
        settings, streams = self._settings(), self.streams
        if 0 < settings.limits.streams <= streams.total:
            raise self._overloaded()
        if 0 < settings.flows[flow].max_streams <= streams.flows[flow]:
            raise self._overloaded(of=" of this service")

    def check(self, spec: FlowSpec, body: Body, session: str = "") -> None:
        """Raise `Problem` 429 or 503 where a request is shed before it is assigned."""
        self.check_slot(spec.name)
        settings = self._settings()
        if not settings.rate.per_minute:
            return
        wanted = USER if settings.rate.by == "user" else settings.flows[spec.name].route_key
        self._check_rate(settings.rate, spec.route_key(body, wanted, session))

    def check_feedback(self, exchange: str) -> None:
        """Raise `Problem` 429 where one exchange gets feedback beyond the rate of requests."""
        if (rate := self._settings().rate).per_minute:
            self._check_rate(rate, f"feedback on {exchange}")

    def _check_rate(self, rate: RateSettings, key: str) -> None:
        if self._rate is not rate and self._rate != rate:
            self._buckets = TokenBuckets(rate.per_minute / 60, rate.burst, rate.keys)
        self._rate = rate
        wait = self._buckets.take(key, self._monotonic())
        if wait:
            why = f"at most {rate.per_minute:g} requests a minute are accepted"
            raise self.count_shed(Problem(429, "rate_limited", why, retry_after=math.ceil(wait)))

    def admit(self, flow: str, assigned: StackName, fallback: StackName | None) -> Admitted:
        """Take a request and a slot for it; raises `Problem` 503."""
        self.check_slot(flow)
        settings, streams = self._settings(), self.streams
        try:
            choice = self.breakers.choose(flow, settings.flows[flow], assigned, fallback)
        except Problem as problem:
            raise self.count_shed(problem) from None
        stack, limits = choice.primary, settings.limits
        most = limits.graph_streams if stack == "graph" else limits.legacy_streams
        # A request that the assigned stack cannot serve is not refused for a full fallback.
        if stack == assigned and 0 < most <= streams.stacks[stack]:
            if choice.attempt is not None:
                choice.attempt.record(None)
            raise self._overloaded(of=" of this service")
        streams.total += 1
        streams.flows[flow] += 1
        streams.stacks[stack] += 1
        return Admitted(choice, streams, flow, stack)

    def count_shed(self, problem: Problem) -> Problem:
        """Count a problem that a request is shed with, and return it."""
        self.shed[problem.code] += 1
        return problem

    def _overloaded(self, *, of: str = "") -> Problem:
        why = f"too many streams{of} are open"
        return self.count_shed(Problem(503, "overloaded", why, retry_after=RETRY_SECONDS))


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class TokenBuckets:
    """A rate limit per key: `burst` requests at once and `per_second` on average.

    Holds at most `keys` buckets, the least recently used dropped first; a new one is full.
    """

    def __init__(self, per_second: float, burst: int, keys: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._keys = keys
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, now: float) -> float:
        """Take a token and return 0, or take none and return the seconds until there is one."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(self._burst, now)
            if len(self._buckets) > self._keys:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        filled = bucket.tokens + (now - bucket.at) * self._per_second
        bucket.tokens, bucket.at = min(filled, self._burst), now
        if bucket.tokens < 1:
            return (1 - bucket.tokens) / self._per_second
        bucket.tokens -= 1
        return 0.0
