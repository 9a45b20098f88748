"""Long-term memory: in this process, and in an SQLite file with full-text search."""

from effects.memory.inmemory import InMemoryMemory
from effects.memory.sqlite import SqliteMemory

__all__ = ["InMemoryMemory", "SqliteMemory"]
