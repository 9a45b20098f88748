"""What follows a failed attempt, decided without a clock: every moment is given, in seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, assert_never

import msgspec

from contract.errors import Fault
from effects.circuit_breaker import BreakerPolicy, CircuitBreaker, Permit, State
from effects.model.errors import Facts
from effects.model.registry import ModelEntry
from effects.model.shapes import REMEDIES, Remedy
from effects.model.splice import Extent

LEAST_WAIT: Final = 0.05
"""Seconds between two requests to one model, whatever is drawn or requested."""
_MAX_DOUBLINGS: Final = 20
_ATTEMPTS_AFTER_500: Final = 2
_BREAKER: Final = BreakerPolicy()


@dataclass(frozen=True, slots=True)
class RescuePolicy:
    """How often each model is called for one answer, and the waits in between, in seconds.

    Waits are drawn from half of `first_wait` to the whole, doubled each time. A provider that asks
    for more than `longest_wait` is not waited for. A model that has said nothing for `hedge` is
    raced by a fallback that stands ready; None: never.
    """

    attempts: int = 3
    first_wait: float = 0.5
    longest_wait: float = 10.0
    breaker: BreakerPolicy = _BREAKER
    hedge: float | None = None


def remedy(fault: Fault, extent: Extent) -> Remedy:
    """Return what a fault calls for, after so much of the answer was sent."""
    if extent == "too_much":
        return "stop"
    found = REMEDIES.get(fault.code, "stop")
    if found != "again":
        return found
    if not fault.retryable:
        return "move"  # no money left, or an error that another call would meet again
    return "again" if extent == "nothing" else "restart"


def blames_provider(fault: Fault) -> bool:
    """Whether a fault is about the provider's health, rather than the request."""
    return fault.code in REMEDIES and fault.code != "model_context_length"


@dataclass(frozen=True, slots=True)
class ProviderBreakerState:
    """State of one breaker.

    `calls` and `failures` are those of the window, `refused` all calls it refused since the
    start, `wait` the seconds until it permits a probe.
    """

    provider: str
    model: str
    state: State
    calls: int
    failures: int
    refused: int
    wait: float


class ProviderBreakers:
    """The circuit breakers of all providers and models, made when they are first needed."""

    def __init__(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        self._breakers: dict[tuple[str, str], CircuitBreaker] = {}

    @property
    def policy(self) -> BreakerPolicy:
        """The policy in force."""
        return self._policy

    @policy.setter
    def policy(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        for breaker in self._breakers.values():
            breaker.policy = policy

    def of(self, entry: ModelEntry) -> CircuitBreaker:
        """Return an entry's breaker; entries of one provider and model share it."""
        key = entry.provider.name, entry.model
        breaker = self._breakers.get(key)
        if breaker is None:
            breaker = self._breakers[key] = CircuitBreaker(self._policy)
        return breaker

    def states(self, now: float) -> list[ProviderBreakerState]:
        """Return the state of all, ordered by provider and model."""
        return [
            ProviderBreakerState(*key, one.state(now), *one.totals(now), one.refused, one.wait(now))
            for key, one in sorted(self._breakers.items())
        ]

    def reset(self, provider: str | None = None, model: str | None = None) -> int:
        """Close all of a provider or model, or simply all; returns how many that were."""
        chosen = [
            breaker
            for (of_provider, of_model), breaker in self._breakers.items()
            if provider in (None, of_provider) and model in (None, of_model)
        ]
        for breaker in chosen:
            breaker.reset()
        return len(chosen)


@dataclass(frozen=True, slots=True)
class CallModel:
    """Call this entry, and record the result with its breaker."""

    entry: ModelEntry
    permit: Permit


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Wait, then ask for the next step."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Nothing more can be done."""

    fault: Fault


RetryStep = CallModel | RetryAfter | GiveUp


@dataclass(frozen=True, slots=True)
class RescueMeans:
    """What all calls share; `draw` returns numbers from 0 to 1."""

    policy: RescuePolicy
    breakers: ProviderBreakers
    draw: Callable[[], float]


class Rescue:
    """The way of one call through attempts: `next`, then `failed` after each that failed.

    The models tried are the one the call names and its fallbacks, each at most so often as the
    policy says, and none after `ends`. If all fail the fault is that of the model the call names.
    """

    def __init__(
        self,
        entry: ModelEntry,
        entries: Mapping[str, ModelEntry],
        means: RescueMeans,
        ends: float,
    ) -> None:
        self.entry = entry
        self.attempts = 0
        self._named = entry
        self._entries = entries
        self._left = entry.fallbacks
        self._means = means
        self._ends = ends
        self._attempts_here = 0
        self._context = 0
        self._fault: Fault | None = None

    def next(self, now: float) -> CallModel | GiveUp:
        """Call the present entry or, where its breaker is open, the next one that may be called."""
        while now < self._ends:
            breaker = self._means.breakers.of(self.entry)
            if (permit := breaker.permit(now)) is not None:
                self._attempts_here += 1
                self.attempts += 1
                return CallModel(self.entry, permit)
            wait = round(breaker.wait(now), 3)
            facts: Facts = {"cause": "breaker_open", "retry_after": wait}
            refused = Fault("model_unavailable", retryable=True, data=facts)
            self._fault = self._fault or refused
            if not self._move():
                break
        return self._give_up()

    def ready(self, now: float) -> ModelEntry | None:
        """Return the first fallback that fits and whose breaker is closed; call nothing."""
        for model_id in self._left:
            if self._fits(model_id):
                entry = self._entries[model_id]
                if self._means.breakers.of(entry).state(now) == "closed":
                    return entry
        return None

    def failed(self, fault: Fault, now: float, extent: Extent) -> RetryStep:
        """Decide what follows from the fault of the last attempt."""
        if self.entry is self._named or self._fault is None:
            self._fault = fault
        match found := remedy(fault, extent):
            case "stop":
                return self._give_up()
            case "again":
                return self._again(fault, now)
            case "move":
                return self._next_model(now)
            case "larger":
                self._context = max(self._context, self.entry.context_tokens or 0)
                return self._next_model(now)
            case "restart":
                last = not any(self._fits(model_id) for model_id in self._left)
                return self._again(fault, now, most=2) if last else self._next_model(now)
            case _:
                assert_never(found)

    def hedge(self, now: float) -> CallModel | None:
        """Call the fallback that stands ready beside the present entry; None where none does."""
        entry = self.ready(now)
        permit = None if entry is None else self._means.breakers.of(entry).permit(now, probe=False)
        if entry is None or permit is None:
            return None
        self.attempts += 1
        return CallModel(entry, permit)

    def failed_beside(self, entry: ModelEntry, fault: Fault) -> None:
        """Note that one of two models called at once has failed: the other goes on."""
        if entry is self.entry:
            self._fault = fault
        else:
            self._left = tuple(name for name in self._left if name != entry.model_id)

    def turn_to(self, entry: ModelEntry) -> None:
        """Go on with the fallback that was called beside the present entry."""
        self.entry = entry
        self._left = self._left[self._left.index(entry.model_id) + 1 :]
        self._attempts_here = 1

    def mismatched(self) -> GiveUp:
        """Decide what follows when a second answer does not begin as the first: nothing can."""
        return self._give_up(spliced=False)

    def _again(self, fault: Fault, now: float, most: int | None = None) -> RetryStep:
        policy = self._means.policy
        attempts = policy.attempts if most is None else min(policy.attempts, most)
        if fault.data.get("status") == HTTPStatus.INTERNAL_SERVER_ERROR:
            attempts = min(attempts, _ATTEMPTS_AFTER_500)
        if self._attempts_here >= attempts:
            return self._next_model(now)
        wait = self._wait(fault)
        if wait > policy.longest_wait or now + wait >= self._ends:
            return self._next_model(now)
        return RetryAfter(wait)

    def _wait(self, fault: Fault) -> float:
        """Draw a wait: equal jitter on an exponential back-off, after what the provider asks for.

        Full jitter draws from nothing: three attempts of a limited provider took 0.16 s.
        """
        policy, draw = self._means.policy, self._means.draw
        doubled = policy.first_wait * 2.0 ** min(self._attempts_here - 1, _MAX_DOUBLINGS)
        requested = fault.data.get("retry_after")
        if isinstance(requested, int | float):
            # All clients got the same number: not all of them at one moment.
            return requested + max(LEAST_WAIT, draw() * min(policy.first_wait, requested))
        return max(LEAST_WAIT, (1 + draw()) / 2 * min(policy.longest_wait, doubled))

    def _next_model(self, now: float) -> CallModel | GiveUp:
        return self.next(now) if self._move() else self._give_up()

    def _move(self) -> bool:
        """Turn to the next fallback that may be called; False when there is none."""
        while self._left:
            model_id, *rest = self._left
            self._left = tuple(rest)
            if self._fits(model_id):
                self.entry = self._entries[model_id]
                self._attempts_here = 0
                return True
        return False

    def _fits(self, model_id: str) -> bool:
        # Entries change at run time: a fallback may have been removed.
        entry = self._entries.get(model_id)
        return entry is not None and (entry.context_tokens or math.inf) > self._context

    def _give_up(self, **facts: bool) -> GiveUp:
        fault = self._fault or Fault("model_unavailable", retryable=True)
        attempts = {"attempts": self.attempts} if self.attempts > 1 else {}
        return GiveUp(msgspec.structs.replace(fault, data={**fault.data, **attempts, **facts}))
