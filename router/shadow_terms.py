"""Terms of shadows, as they are now: how many may run side by side, and whom they ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contract.ports import Model
    from effects.conversations.own import OwnConversation
    from router.parts import Parts
    from router.stacks import Stack


@dataclass(frozen=True, slots=True)
class ShadowTerms:
    """What a router's parts and the settings in force say of its shadows."""

    parts: Parts

    @property
    def at_once(self) -> int:
        """How many may run side by side: one that computes here, or many that wait."""
        settings = self.parts.settings().shadow
        if not all(stack.powers.taped for stack in self.parts.stacks.values()):
            return settings.streams
        return settings.model_calls if settings.mode == "live" else 1

    @property
    def model(self) -> Model | None:
        """Whom they ask; None where they play what was answered."""
        live = self.parts.settings().shadow.mode == "live"
        return self.parts.shadow_model if live else None

    def side(self, stack: Stack) -> OwnConversation | None:
        """Open a stack's own side of a conversation; None where it is told what was served."""
        own = self.parts.settings().shadow.history == "own"
        free = own and self.model is not None and stack.powers.taped
        return self.parts.own_replies.of(stack.name) if free else None
