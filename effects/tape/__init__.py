"""The tape of an exchange: every effect is performed once, recorded, and played to other runs."""

from effects.tape.exchange import Deadlines, Exchange
from effects.tape.held import held
from effects.tape.keys import Key, UnknownOperation, canonical, known, label
from effects.tape.paused_tape import outdated, read, write
from effects.tape.play import Play
from effects.tape.resume import Asking, SuspendingHuman, broken_off, request_of, resume
from effects.tape.session import CALL, MOST_ASKED, AskedTooMuch, Policy, TapeSession
from effects.tape.tape import MOST_BESIDE, Bounds, Budget, Entry, Signal, Tape
from effects.tape.taped_ports import NodeTimes, taped

__all__ = [
    "CALL",
    "MOST_ASKED",
    "MOST_BESIDE",
    "AskedTooMuch",
    "Asking",
    "Bounds",
    "Budget",
    "Deadlines",
    "Entry",
    "Exchange",
    "Key",
    "NodeTimes",
    "Play",
    "Policy",
    "Signal",
    "SuspendingHuman",
    "Tape",
    "TapeSession",
    "UnknownOperation",
    "broken_off",
    "canonical",
    "held",
    "known",
    "label",
    "outdated",
    "read",
    "request_of",
    "resume",
    "taped",
    "write",
]
