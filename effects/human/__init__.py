"""Humans who answer questions, and the pauses that wait for them."""

from effects.human.form import Problem, check_answer, values
from effects.human.memory import MemoryPauses
from effects.human.pause import ClaimReply, Pause, PauseStore, RespondReply, Swept
from effects.human.people import NobodyThere, ScriptedHuman
from effects.human.sqlite import SqlitePauses

__all__ = [
    "ClaimReply",
    "MemoryPauses",
    "NobodyThere",
    "Pause",
    "PauseStore",
    "Problem",
    "RespondReply",
    "ScriptedHuman",
    "SqlitePauses",
    "Swept",
    "check_answer",
    "values",
]
