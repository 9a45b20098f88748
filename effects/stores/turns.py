"""What every store of conversations agrees on: which turns are equal, which can be kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString, NamedTuple

from effects.stores.values import require_storable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.stores import Turn
    from effects.stores.values import Kind

COLUMNS = "message_id, role, content, chat_id, user_id, user_name, reply_to"

# Placeholders are `{}`; a reply belongs to whoever was replied to.
WHOSE: Mapping[Kind, LiteralString] = {
    "user": "user_id = {} OR reply_to IN (SELECT message_id FROM turns WHERE user_id = {})",
    "chat": "chat_id = {}",
    "message": "message_id = {} OR reply_to = {}",
}
"""The condition for the turns of somebody."""


class ErasedTurns(NamedTuple):
    """What was removed: how many turns, and the chats they stood in."""

    turns: int
    chats: frozenset[str]


def same(kept: Turn, turn: Turn) -> bool:
    """Whether a turn with an id already taken is the one that is kept."""
    return (kept.content, kept.role, kept.chat_id, kept.user_id) == (
        turn.content,
        turn.role,
        turn.chat_id,
        turn.user_id,
    )


def check_turn(turn: Turn) -> None:
    """Raise `EffectFailed(store_failed)` where a text of the turn cannot be kept."""
    require_storable(
        "store_failed",
        turn.message_id,
        turn.content,
        turn.chat_id,
        turn.user_id,
        turn.user_name,
        turn.reply_to,
    )


def check_ids(*ids: str) -> None:
    """Raise `EffectFailed(store_failed)` where an id could not have been kept."""
    require_storable("store_failed", *ids)
