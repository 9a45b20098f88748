"""What every memory agrees on: which entries can be kept, and in which columns tables have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from contract.stores import MemoryEntry
from effects.storable import require_storable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contract.stores import Recall

COLUMNS: Final = "memory_id, user_id, text, session_id, relation, confidence"
"""The fields of an entry, as a table names them."""


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


def entry_of(row: Sequence[Any]) -> MemoryEntry:
    """Read an entry from its `COLUMNS`."""
    memory_id, user_id, text, session_id, relation, confidence = row
    return MemoryEntry(
        memory_id=memory_id,
        user_id=user_id,
        text=text,
        session_id=session_id,
        relation=relation,
        confidence=confidence,
    )
