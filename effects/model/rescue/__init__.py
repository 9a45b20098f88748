"""The model port that rescues provider faults, below the recorder: one call, one entry."""

from effects.circuit_breaker import BreakerPolicy
from effects.model.rescue.breaker import ProviderBreakers, ProviderBreakerState
from effects.model.rescue.counts import Attempt, Followed, RescueCounts
from effects.model.rescue.policy import RescuePolicy
from effects.model.rescue.port import RescuingModel

__all__ = [
    "Attempt",
    "BreakerPolicy",
    "Followed",
    "ProviderBreakerState",
    "ProviderBreakers",
    "RescueCounts",
    "RescuePolicy",
    "RescuingModel",
]
