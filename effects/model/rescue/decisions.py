"""What to do next for one answer, decided without a clock: every moment is given, in seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, assert_never

import msgspec

from contract.errors import Fault
from effects.circuit_breaker import Permit
from effects.model.entry import ModelEntry
from effects.model.failures import Facts
from effects.model.rescue.breaker import ProviderBreakers
from effects.model.rescue.policy import RescuePolicy, conduct, most_attempts
from effects.model.rescue.splicing import Extent

LEAST_WAIT: Final = 0.05
"""Seconds between two requests to one model, whatever is drawn or asked for."""

_MOST_DOUBLINGS: Final = 20


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask this entry, and record the result with its breaker."""

    entry: ModelEntry
    permit: Permit


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait, then ask what is next."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Nothing more can be done."""

    fault: Fault


Step = Ask | Wait | GiveUp


@dataclass(frozen=True, slots=True)
class Means:
    """What all calls share; `draw` gives numbers from 0 to 1."""

    policy: RescuePolicy
    breakers: ProviderBreakers
    draw: Callable[[], float]


class Rescue:
    """The way of one call through attempts: call `next`, then `failed` after each that failed.

    The models asked are the one the call names and its fallbacks, each at most so often as the
    policy says, and none after `ends`. If all fail the fault is that of the model the call names.
    """

    def __init__(
        self,
        entry: ModelEntry,
        entries: Mapping[str, ModelEntry],
        means: Means,
        ends: float,
    ) -> None:
        self._entry = entry
        self._named = entry
        self._entries = entries
        self._left = entry.fallbacks
        self._means = means
        self._ends = ends
        self._asked = 0
        self._context = 0
        self._fault: Fault | None = None
        self.attempts = 0

    @property
    def entry(self) -> ModelEntry:
        """The entry that is asked now."""
        return self._entry

    def next(self, now: float) -> Ask | GiveUp:
        """Ask the present entry or, where its breaker is open, the next one that may be asked."""
        while now < self._ends:
            breaker = self._means.breakers.of(self._entry)
            if (permit := breaker.permit(now)) is not None:
                self._asked += 1
                self.attempts += 1
                return Ask(self._entry, permit)
            self._remember(_resting(breaker.wait(now)))
            if not self._move():
                break
        return self._give_up()

    def failed(self, fault: Fault, now: float, said: Extent) -> Step:
        """Decide what follows from the fault of the attempt made last."""
        if self._entry is self._named:
            self._fault = fault
        self._remember(fault)
        match asked := conduct(fault, said):
            case "stop":
                return self._give_up()
            case "again":
                return self._again(fault, now)
            case "move":
                return self._next_model(now)
            case "larger":
                self._context = max(self._context, self._entry.context_tokens)
                return self._next_model(now)
            case "restart":
                return self._again(fault, now, most=2) if self._last else self._next_model(now)
            case _:
                assert_never(asked)

    def unlike(self) -> GiveUp:
        """Decide what follows when a second answer does not begin as the first: nothing can."""
        return self._give_up(spliced=False)

    @property
    def _last(self) -> bool:
        return not any(self._fits(model_id) for model_id in self._left)

    def _again(self, fault: Fault, now: float, most: int | None = None) -> Step:
        attempts = most_attempts(fault, self._means.policy)
        if self._asked >= min(attempts, most or attempts):
            return self._next_model(now)
        wait = self._wait(fault)
        if wait > self._means.policy.longest_wait or now + wait >= self._ends:
            return self._next_model(now)
        return Wait(wait)

    def _wait(self, fault: Fault) -> float:
        """Draw a wait: full jitter on an exponential back-off, after what the provider asks for."""
        policy, draw = self._means.policy, self._means.draw
        doubled = policy.first_wait * 2.0 ** min(self._asked - 1, _MOST_DOUBLINGS)
        told = fault.data.get("retry_after")
        if isinstance(told, int | float):
            # Everybody was told the same: not all of them at one moment.
            return told + max(LEAST_WAIT, draw() * min(policy.first_wait, told))
        return max(LEAST_WAIT, draw() * min(policy.longest_wait, doubled))

    def _next_model(self, now: float) -> Ask | GiveUp:
        return self.next(now) if self._move() else self._give_up()

    def _move(self) -> bool:
        """Turn to the next fallback that may be asked; False when there is none."""
        while self._left:
            model_id, *rest = self._left
            self._left = tuple(rest)
            if self._fits(model_id):
                self._entry = self._entries[model_id]
                self._asked = 0
                return True
        return False

    def _fits(self, model_id: str) -> bool:
        # Entries change at run time: a fallback may be gone.
        entry = self._entries.get(model_id)
        return entry is not None and entry.context_tokens > self._context

    def _remember(self, fault: Fault) -> None:
        self._fault = self._fault or fault

    def _give_up(self, **facts: bool) -> GiveUp:
        fault = self._fault or Fault("model_unavailable", retryable=True)
        told = {"attempts": self.attempts} if self.attempts > 1 else {}
        return GiveUp(msgspec.structs.replace(fault, data={**fault.data, **told, **facts}))


def _resting(seconds: float) -> Fault:
    facts: Facts = {"cause": "breaker_open", "retry_after": round(seconds, 3)}
    return Fault("model_unavailable", retryable=True, data=facts)
