"""Stores of conversations: in memory, in SQLite, behind HTTP; PostgreSQL's needs its extra."""

from effects.conversations.memory import MemoryConversations
from effects.conversations.remote import HttpConversations
from effects.conversations.sqlite import SqliteConversations

__all__ = ["HttpConversations", "MemoryConversations", "SqliteConversations"]
