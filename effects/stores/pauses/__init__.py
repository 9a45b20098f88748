"""Pauses: exchanges that wait for a human, how they move, and where they are stored."""

from effects.stores.pauses.encryption import Encryption, InvalidKeys, Plaintext, read_keys
from effects.stores.pauses.fake import MemoryPauses
from effects.stores.pauses.pause import (
    ClaimReply,
    ExpireReply,
    Pause,
    RespondReply,
    Swept,
    Waiting,
)
from effects.stores.pauses.store import PauseStore, SqlPauses

__all__ = [
    "ClaimReply",
    "Encryption",
    "ExpireReply",
    "InvalidKeys",
    "MemoryPauses",
    "Pause",
    "PauseStore",
    "Plaintext",
    "RespondReply",
    "SqlPauses",
    "Swept",
    "Waiting",
    "read_keys",
]
