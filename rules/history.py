"""How much of a conversation a model is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rules.tokens import estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contract.conversations import Turn


def window(turns: Sequence[Turn], budget: int) -> tuple[Turn, ...]:
    """Keep the newest turns that fit into `budget` estimated tokens, oldest first."""
    kept: list[Turn] = []
    left = budget
    for turn in reversed(turns):
        left -= estimate(turn.content)
        if left < 0:
            break
        kept.append(turn)
    return tuple(reversed(kept))
