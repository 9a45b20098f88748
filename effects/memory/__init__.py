"""Long-term memory: what is known of users, found by vectors and by full text."""

from effects.memory.fake import HashedEmbedder, InMemoryMemory
from effects.memory.sqlite import SqliteMemory

__all__ = ["HashedEmbedder", "InMemoryMemory", "SqliteMemory"]
