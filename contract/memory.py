"""Long-term memory: what is remembered of a user beyond one conversation."""

from __future__ import annotations

import msgspec


class MemoryEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One remembered fact; `session_id` is where it was learnt."""

    memory_id: str
    user_id: str
    text: str
    session_id: str | None = None
    relation: str | None = None
    confidence: float | None = None


class Recall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Arguments of `memory.recall`: never another user's entries, nor `except_session`'s."""

    user_id: str
    query: str
    limit: int = 5
    except_session: str | None = None
    relation: str | None = None


class Memories(msgspec.Struct, frozen=True):
    """Result of `memory.recall`, best first."""

    entries: tuple[MemoryEntry, ...]


class Remember(msgspec.Struct, frozen=True):
    """Arguments of `memory.write`; an entry equal in user and text is stored once."""

    entries: tuple[MemoryEntry, ...]


class Remembered(msgspec.Struct, frozen=True):
    """Result of `memory.write`: how many entries were new."""

    written: int
