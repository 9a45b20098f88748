"""The model port: its registry, the adapter for OpenAI-compatible providers, rescue, fake."""

from effects.circuit_breaker import BreakerPolicy
from effects.model.fake import (
    Fail,
    Hang,
    Script,
    ScriptedModel,
    Step,
    Wait,
    by_last_text,
    in_turn,
    says,
)
from effects.model.port import (
    AttemptLine,
    LimitedModel,
    RescueCounts,
    Rescued,
    RescueLine,
    RescuingModel,
    resolving,
    resolving_effects,
)
from effects.model.registry import (
    ClientPool,
    DuplicateModel,
    KeyUnusable,
    Limits,
    ModelEntry,
    ModelRegistry,
    Prices,
    Provider,
    Secret,
)
from effects.model.retry import ProviderBreakers, ProviderBreakerState, RescuePolicy

__all__ = [
    "AttemptLine",
    "BreakerPolicy",
    "ClientPool",
    "DuplicateModel",
    "Fail",
    "Hang",
    "KeyUnusable",
    "LimitedModel",
    "Limits",
    "ModelEntry",
    "ModelRegistry",
    "Prices",
    "Provider",
    "ProviderBreakerState",
    "ProviderBreakers",
    "RescueCounts",
    "RescueLine",
    "RescuePolicy",
    "Rescued",
    "RescuingModel",
    "Script",
    "ScriptedModel",
    "Secret",
    "Step",
    "Wait",
    "by_last_text",
    "in_turn",
    "resolving",
    "resolving_effects",
    "says",
]
