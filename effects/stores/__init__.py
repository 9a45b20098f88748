"""Stores: conversations, pauses, locks, and the state routers share, in every place they can be.

What an extra installs is imported by its module: `postgres`, `redis`, `pauses.aes`.
"""

from effects.stores.conversations import SqlConversations
from effects.stores.database import Database, open_database
from effects.stores.fake import (
    MemoryConversations,
    MemoryLeases,
    MemoryPins,
    MemorySharedState,
)
from effects.stores.http import HttpConversations, conversation_service
from effects.stores.locks import (
    LeasedLocks,
    Leases,
    ProcessLocks,
    ResilientLocks,
    SqlLeases,
)
from effects.stores.pauses import (
    ClaimReply,
    Encryption,
    ExpireReply,
    InvalidKeys,
    MemoryPauses,
    Pause,
    PauseStore,
    Plaintext,
    RespondReply,
    SqlPauses,
    Swept,
    Waiting,
    read_keys,
)
from effects.stores.shadow_replies import ReplyLimits, ShadowConversation, ShadowReplies
from effects.stores.shared_state import (
    NO_SPENDING,
    BreakerNote,
    BreakerPhase,
    NoteUpdate,
    Pin,
    PinStore,
    SharedState,
    Spending,
    SqlPins,
    SqlSharedState,
)
from effects.stores.sqlite import sqlite_file
from effects.stores.tables import StoreNotOpened
from effects.stores.values import DataSubject, HealthCheck

__all__ = [
    "NO_SPENDING",
    "BreakerNote",
    "BreakerPhase",
    "ClaimReply",
    "DataSubject",
    "Database",
    "Encryption",
    "ExpireReply",
    "HealthCheck",
    "HttpConversations",
    "InvalidKeys",
    "LeasedLocks",
    "Leases",
    "MemoryConversations",
    "MemoryLeases",
    "MemoryPauses",
    "MemoryPins",
    "MemorySharedState",
    "NoteUpdate",
    "Pause",
    "PauseStore",
    "Pin",
    "PinStore",
    "Plaintext",
    "ProcessLocks",
    "ReplyLimits",
    "ResilientLocks",
    "RespondReply",
    "ShadowConversation",
    "ShadowReplies",
    "SharedState",
    "Spending",
    "SqlConversations",
    "SqlLeases",
    "SqlPauses",
    "SqlPins",
    "SqlSharedState",
    "StoreNotOpened",
    "Swept",
    "Waiting",
    "conversation_service",
    "open_database",
    "read_keys",
    "sqlite_file",
]
