"""Stores: conversations, pauses, locks, and the state routers share, in every place they can be.

What an extra installs is imported by its module: `postgres`, `redis`, `pauses.aes`.
"""

from effects.stores.conversations import SqliteConversations
from effects.stores.fake import (
    MemoryConversations,
    MemoryLeases,
    MemoryPauses,
    MemoryPins,
    MemorySharedState,
)
from effects.stores.health import HealthCheck
from effects.stores.http import HttpConversations, conversation_service
from effects.stores.locks import (
    LeasedLocks,
    Leases,
    ProcessLocks,
    ResilientLocks,
    SqliteLeases,
)
from effects.stores.pauses import (
    ClaimReply,
    Encryption,
    ExpireReply,
    InvalidKeys,
    Pause,
    PauseStore,
    Plaintext,
    RespondReply,
    SqlitePauses,
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
    SqlitePins,
    SqliteSharedState,
)
from effects.stores.tables import StoreNotOpened
from effects.stores.values import DataSubject

__all__ = [
    "NO_SPENDING",
    "BreakerNote",
    "BreakerPhase",
    "ClaimReply",
    "DataSubject",
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
    "SqliteConversations",
    "SqliteLeases",
    "SqlitePauses",
    "SqlitePins",
    "SqliteSharedState",
    "StoreNotOpened",
    "Swept",
    "Waiting",
    "conversation_service",
    "read_keys",
]
