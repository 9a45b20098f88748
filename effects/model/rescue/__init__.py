"""The model port that rescues provider faults, below the recorder: one call, one entry."""

from effects.model.rescue.breaker import Breakers, BreakerState
from effects.model.rescue.counts import Attempt, Followed, RescueCounts
from effects.model.rescue.policy import BreakerPolicy, RescuePolicy
from effects.model.rescue.port import RescuingModel

__all__ = [
    "Attempt",
    "BreakerPolicy",
    "BreakerState",
    "Breakers",
    "Followed",
    "RescueCounts",
    "RescuePolicy",
    "RescuingModel",
]
