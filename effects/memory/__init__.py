"""Long-term memory: what is known of users, found by vectors and by full text."""

from effects.memory.fake import HashedEmbedder, InMemoryMemory
from effects.memory.search import LongTermMemory, open_entries, open_memory

__all__ = ["HashedEmbedder", "InMemoryMemory", "LongTermMemory", "open_entries", "open_memory"]
