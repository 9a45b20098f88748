"""Humans who answer questions, and the pauses that wait for them."""

from effects.human.memory import MemoryPauses
from effects.human.pause import (
    ClaimReply,
    ExpireReply,
    Pause,
    PauseStore,
    RespondReply,
    Swept,
    Waiting,
)
from effects.human.people import NobodyThere, ScriptedHuman
from effects.human.sealing import KeysUnusable, Sealing, Unsealed, read_keys
from effects.human.sqlite import SqlitePauses

__all__ = [
    "ClaimReply",
    "ExpireReply",
    "KeysUnusable",
    "MemoryPauses",
    "NobodyThere",
    "Pause",
    "PauseStore",
    "RespondReply",
    "ScriptedHuman",
    "Sealing",
    "SqlitePauses",
    "Swept",
    "Unsealed",
    "Waiting",
    "read_keys",
]
