"""The model port: its registry, the adapter for OpenAI-compatible providers, rescue, fake."""

from effects.model.entry import KeyUnusable, Limits, ModelEntry, Prices, Provider, Secret
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
from effects.model.few import FewAtOnce
from effects.model.provider import OpenAIModel
from effects.model.registry import ModelRegistry, ModelTwice
from effects.model.rescue import BreakerPolicy, RescuePolicy, RescuingModel

__all__ = [
    "BreakerPolicy",
    "Fail",
    "FewAtOnce",
    "Hang",
    "KeyUnusable",
    "Limits",
    "ModelEntry",
    "ModelRegistry",
    "ModelTwice",
    "OpenAIModel",
    "Prices",
    "Provider",
    "RescuePolicy",
    "RescuingModel",
    "Script",
    "ScriptedModel",
    "Secret",
    "Step",
    "Wait",
    "by_last_text",
    "in_turn",
    "says",
]
