"""The model port: its registry, the adapter for OpenAI-compatible providers, its fake."""

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
from effects.model.provider import OpenAIModel
from effects.model.registry import ModelRegistry, ModelTwice

__all__ = [
    "Fail",
    "Hang",
    "KeyUnusable",
    "Limits",
    "ModelEntry",
    "ModelRegistry",
    "ModelTwice",
    "OpenAIModel",
    "Prices",
    "Provider",
    "Script",
    "ScriptedModel",
    "Secret",
    "Step",
    "Wait",
    "by_last_text",
    "in_turn",
    "says",
]
