"""Circuit breakers, one per provider and model, decided without a clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from effects.model.entry import ModelEntry
from effects.model.rescue.policy import BreakerPolicy

State = Literal["closed", "open", "half_open"]


@dataclass(frozen=True, slots=True)
class BreakerState:
    """What one breaker knows.

    `calls` and `failures` are those of the window, `refused` all calls it kept away since the
    start, `rests` the seconds until it lets a probe through.
    """

    provider: str
    model: str
    state: State
    calls: int
    failures: int
    refused: int
    rests: float


class Admission:
    """Leave to make one call; its end is told exactly once."""

    __slots__ = ("_breaker",)

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker

    def end(self, now: float, *, ok: bool | None) -> None:
        """Tell how the call ended; None where that says nothing of the provider."""
        self._breaker.ended(self, now, ok=ok)


class Breaker:
    """Opens when too many calls fail, lets one probe through after a rest, closes if that succeeds.

    Calls that were under way when it opened say nothing any more.
    """

    __slots__ = ("_calls", "_failures", "_opens", "_probe", "policy", "refused")

    def __init__(self, policy: BreakerPolicy) -> None:
        self.policy = policy
        self.refused = 0
        self._probe: Admission | None = None
        self.reset()

    def reset(self) -> None:
        """Close, and forget what was."""
        self._calls: deque[tuple[float, bool]] = deque()
        self._failures = 0
        self._opens: float | None = None
        self._probe = None

    def admit(self, now: float) -> Admission | None:
        """Let a call through, or not."""
        if self._opens is None:
            return Admission(self)
        if self._probe is not None or now < self._opens:
            self.refused += 1
            return None
        self._probe = Admission(self)
        return self._probe

    def ended(self, admission: Admission, now: float, *, ok: bool | None) -> None:
        """Take how an admitted call ended."""
        if admission is self._probe:
            self._probe = None
            if ok:
                self.reset()
            elif ok is not None:
                self._opens = now + self.policy.rest
        elif self._opens is None and ok is not None:
            self._note(now, ok=ok)

    def rests(self, now: float) -> float:
        """Return the seconds until a probe is let through; 0 when closed."""
        return max(self._opens - now, 0.0) if self._opens is not None else 0.0

    def state(self, entry: tuple[str, str], now: float) -> BreakerState:
        """Tell what is known of a (provider, model)."""
        self._forget(now)
        state: State = "closed"
        if self._opens is not None:
            state = "open" if now < self._opens else "half_open"
        counts = len(self._calls), self._failures, self.refused
        return BreakerState(*entry, state, *counts, self.rests(now))

    def _note(self, now: float, *, ok: bool) -> None:
        self._calls.append((now, ok))
        self._forget(now)
        if ok:
            return
        self._failures += 1
        calls = len(self._calls)
        if calls >= self.policy.calls and self._failures >= calls * self.policy.ratio:
            self._opens = now + self.policy.rest

    def _forget(self, now: float) -> None:
        calls, before = self._calls, now - self.policy.window
        while calls and calls[0][0] <= before:
            self._failures -= not calls.popleft()[1]


class Breakers:
    """The breakers of all providers and models, made when they are first asked."""

    def __init__(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        self._breakers: dict[tuple[str, str], Breaker] = {}

    @property
    def policy(self) -> BreakerPolicy:
        """The policy in force."""
        return self._policy

    @policy.setter
    def policy(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        for breaker in self._breakers.values():
            breaker.policy = policy

    def of(self, entry: ModelEntry) -> Breaker:
        """Return an entry's breaker; entries of one provider and model share it."""
        key = entry.provider.name, entry.model
        breaker = self._breakers.get(key)
        if breaker is None:
            breaker = self._breakers[key] = Breaker(self._policy)
        return breaker

    def states(self, now: float) -> list[BreakerState]:
        """Tell the state of all, ordered by provider and model."""
        return [breaker.state(key, now) for key, breaker in sorted(self._breakers.items())]

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
