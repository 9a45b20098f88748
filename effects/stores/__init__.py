"""Stores: conversations, pauses, locks, and the state routers share, in every place they can be.

What an extra installs is imported by its module: `postgres`, `redis`, `pauses.aes`.
"""

from effects.stores.audit import SqlAudit
from effects.stores.conversations import ConversationStore, SqlConversations
from effects.stores.fake import (
    MemoryConversations,
    MemoryLeases,
    MemoryPauses,
    MemoryPins,
    MemorySharedState,
)
from effects.stores.http import HttpConversations
from effects.stores.locks import (
    LeasedLocks,
    Leases,
    ProcessLocks,
    SqlLeases,
)
from effects.stores.pauses.encryption import Encryption, InvalidKeys, Plaintext, read_keys
from effects.stores.pauses.store import PauseStore, SqlPauses
from effects.stores.pauses.transitions import ClaimReply, Pause, PauseTotals, Swept, Waiting
from effects.stores.pauses.write_journal import (
    MemoryWriteJournal,
    SqlWriteJournal,
    StoredWrite,
    WriteJournal,
)
from effects.stores.shadow_replies import ShadowConversation, ShadowReplies
from effects.stores.shared_state import (
    NO_SPENDING,
    BreakerNote,
    BreakerPhase,
    NoteUpdate,
    Pin,
    PinCount,
    PinnedStack,
    PinStore,
    SharedState,
    Spending,
    SqlPins,
    SqlSharedState,
)
from effects.stores.sqlite import sqlite_file
from effects.stores.tables import HealthCheck

__all__ = [
    "NO_SPENDING",
    "BreakerNote",
    "BreakerPhase",
    "ClaimReply",
    "ConversationStore",
    "Encryption",
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
    "MemoryWriteJournal",
    "NoteUpdate",
    "Pause",
    "PauseStore",
    "PauseTotals",
    "Pin",
    "PinCount",
    "PinStore",
    "PinnedStack",
    "Plaintext",
    "ProcessLocks",
    "ShadowConversation",
    "ShadowReplies",
    "SharedState",
    "Spending",
    "SqlAudit",
    "SqlConversations",
    "SqlLeases",
    "SqlPauses",
    "SqlPins",
    "SqlSharedState",
    "SqlWriteJournal",
    "StoredWrite",
    "Swept",
    "Waiting",
    "WriteJournal",
    "read_keys",
    "sqlite_file",
]
