"""Provider breakers: shared by the ids of one model, read, reset, and given another policy."""

from __future__ import annotations

from effects.circuit_breaker import BreakerPolicy, CircuitBreaker
from effects.model import ModelEntry, Provider, ProviderBreakers

POLICY = BreakerPolicy(window=30, calls=4, ratio=0.5, rest=10)
ENTRY = ModelEntry("m", Provider("here", "http://127.0.0.1:1/v1"), "loop-1")


def fail(breaker: CircuitBreaker, times: int) -> None:
    """Make calls that fail."""
    for _ in range(times):
        breaker.record(breaker.permit(0), "failure", 0)


def test_breakers_are_per_provider_and_model() -> None:
    """Two ids of one model share one; states are read and reset."""
    breakers = ProviderBreakers(POLICY)
    fail(breakers.of(ENTRY), 4)
    same = ModelEntry("other-id", ENTRY.provider, "loop-1")
    other = ModelEntry("m2", ENTRY.provider, "loop-2")
    assert breakers.of(same).permit(1) is None
    assert breakers.of(other).permit(1) is not None
    states = [(one.model, one.state, one.failures, one.refused) for one in breakers.states(1)]
    assert states == [("loop-1", "open", 4, 1), ("loop-2", "closed", 0, 0)]
    assert breakers.reset("elsewhere") == 0
    assert breakers.reset("here", "loop-1") == 1
    assert breakers.of(ENTRY).permit(1) is not None


def test_a_changed_policy_applies_to_existing_breakers() -> None:
    """At once."""
    breakers = ProviderBreakers(POLICY)
    breaker = breakers.of(ENTRY)
    breakers.policy = BreakerPolicy(calls=1)
    fail(breaker, 1)
    assert breaker.state(0) == "open"
