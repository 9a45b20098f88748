"""Circuit breakers of the providers, one per provider and model."""

from __future__ import annotations

from dataclasses import dataclass

from effects.circuit_breaker import BreakerPolicy, CircuitBreaker, State
from effects.model.entry import ModelEntry


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
    """The breakers of all providers and models, made when they are first needed."""

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
