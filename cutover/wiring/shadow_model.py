"""The model shadows ask: the same models, on connections and behind breakers of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from effects.model import LimitedModel, ModelRegistry, RescuingModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from effects.model import ModelEntry, RescuePolicy


@dataclass(frozen=True, slots=True)
class ShadowModel:
    """What shadows ask through `port`: those who are served never wait for them."""

    registry: ModelRegistry
    model: RescuingModel
    port: LimitedModel

    @classmethod
    def of(cls, entries: Sequence[ModelEntry], policy: RescuePolicy, most: int) -> ShadowModel:
        """Make one that gives `most` answers at once; connections are opened when it is asked."""
        registry = ModelRegistry(entries)
        model = RescuingModel(registry, policy)
        return cls(registry, model, LimitedModel(model, most))
