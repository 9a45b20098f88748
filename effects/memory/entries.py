"""What every memory agrees on: which entries can be kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from effects.storable import require_storable

if TYPE_CHECKING:
    from contract.memory import MemoryEntry, Recall


def check_entry(entry: MemoryEntry) -> None:
    """Raise `EffectFailed(memory_failed)` where a text of the entry cannot be kept."""
    require_storable(
        "memory_failed",
        entry.memory_id,
        entry.user_id,
        entry.text,
        entry.session_id,
        entry.relation,
    )


def check_query(query: Recall) -> None:
    """Raise `EffectFailed(memory_failed)` where a text of the query could not have been kept."""
    require_storable(
        "memory_failed", query.user_id, query.query, query.except_session, query.relation
    )
