"""Counting tokens, what follows from their number, and how much of a history a model is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from rules.flows.pipeline import TokenAction

T = TypeVar("T")

CHAT_HISTORY: Final = 20
"""Earlier messages of a conversation that a chat shows its model at most."""
HISTORY: Final = 100
"""The same for the other flows."""

SHARES: Final[tuple[tuple[TokenAction, int], ...]] = (
    *(("continue", 0), ("warn", 70), ("compress", 85), ("end", 95)),
)
"""Actions of the pipeline's token monitor, and the percentage of the limit each begins at."""

_ASCII_PER_TOKEN: Final = 4


def estimate(text: str) -> int:
    """Return an estimate of tokens: four ASCII characters make one, any other makes one itself."""
    ascii_count = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
    return len(text) - ascii_count - (-ascii_count // _ASCII_PER_TOKEN)


def window(
    turns: Sequence[T], text_of: Callable[[T], str], budget: int, most: int
) -> tuple[T, ...]:
    """Return the newest `most` turns at most that fit into a budget of estimated tokens.

    Oldest first; the first turn that does not fit ends the window, so that none is left out within.
    """
    kept: list[T] = []
    for turn in reversed(turns[-most:] if most else ()):
        budget -= estimate(text_of(turn))
        if budget < 0:
            break
        kept.append(turn)
    return tuple(reversed(kept))


def token_action(used: int, limit: int) -> TokenAction:
    """Return what follows from a number of tokens, by the last share of the limit it reaches."""
    reached = [action for action, percent in SHARES if 100 * used >= percent * limit]
    return reached[-1]


def turns_to_drop(counts: Sequence[int], limit: int) -> int:
    """Return how many of the oldest turns to leave out, until no more than a warning is due.

    `counts` are the tokens of each turn, oldest first, and of the message last, which stays.
    """
    used, dropped = sum(counts), 0
    while dropped < len(counts) - 1 and token_action(used, limit) in {"compress", "end"}:
        used -= counts[dropped]
        dropped += 1
    return dropped
